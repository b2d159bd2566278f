#pragma once

#include "kernels/conv/conv2d.h"

// The oracle of conv.h: plain loops in f64, one product after the other. Shapes as there.
namespace troop {

void ConvForwardReference(const ConvShape& shape, Activation activation, std::int64_t batch,
                          const double* weight, const double* bias, const double* x, double* y);
// dx is overwritten.
void ConvBackwardDataReference(const ConvShape& shape, std::int64_t batch, const double* weight,
                               const double* dz, double* dx);
// dw [filters, kernel, kernel, channels] and db [filters] are overwritten.
void ConvBackwardWeightReference(const ConvShape& shape, std::int64_t batch, const double* x,
                                 const double* dz, double* dw, double* db);

}  // namespace troop
