#pragma once

#include "kernels/conv/conv2d.h"

// Reference implementation of conv2d.h for tests: plain f64 loops, one product after the other.
// Shapes as in conv2d.h.
namespace troop {

// Overwrites y.
void ConvForwardReference(const ConvShape& shape, Activation activation, std::int64_t batch,
                          const double* weight, const double* bias, const double* x, double* y);
// Overwrites dx.
void ConvBackwardDataReference(const ConvShape& shape, std::int64_t batch, const double* weight,
                               const double* dz, double* dx);
// Overwrites dw [filters, kernel, kernel, channels / groups] and db [filters].
void ConvBackwardWeightReference(const ConvShape& shape, std::int64_t batch, const double* x,
                                 const double* dz, double* dw, double* db);

}  // namespace troop
