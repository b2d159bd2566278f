#pragma once

#include "kernels/linear/linear.h"

// Reference implementation of linear.h for tests: plain f64 loops, one product after the other.
// Shapes: LinearShape (kernels/shapes.h).
namespace troop {

double ActivationReference(Activation activation, double z);

// y [batch, out] = activation(x · wᵀ + b).
void LinearForwardReference(const LinearShape& shape, Activation activation, std::int64_t batch,
                            const double* weight, const double* bias, const double* x, double* y);
// dx [batch, in] = dz · w.
void LinearBackwardDataReference(const LinearShape& shape, std::int64_t batch, const double* weight,
                                 const double* dz, double* dx);
// dw [out, in] = dzᵀ · x, db [out] = Σ_b dz.
void LinearBackwardWeightReference(const LinearShape& shape, std::int64_t batch, const double* x,
                                   const double* dz, double* dw, double* db);

}  // namespace troop
