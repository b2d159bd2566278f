// Reference fully connected layers, in f64.
#include "kernels/linear/linear_reference.h"

#include <cmath>

namespace troop {

// f64 throughout, so that the error of the tested kernels dominates the comparison.
double ActivationReference(Activation activation, double z) {
  switch (activation) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return z > 0 ? z : 0;
    case Activation::kTanh:
      return std::tanh(z);
  }
  return z;
}

// y[b, o] = f(bias[o] + sum over i of w[o, i] x[b, i]).
void LinearForwardReference(const LinearShape& shape, Activation activation, std::int64_t batch,
                            const double* weight, const double* bias, const double* x, double* y) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t o = 0; o < shape.out; ++o) {
      double sum = bias[o];
      for (std::int64_t i = 0; i < shape.in; ++i)
        sum += weight[o * shape.in + i] * x[b * shape.in + i];
      y[b * shape.out + o] = ActivationReference(activation, sum);
    }
  }
}

// dx[b, i] = sum over o of w[o, i] dz[b, o]; dz is the gradient before the activation.
void LinearBackwardDataReference(const LinearShape& shape, std::int64_t batch, const double* weight,
                                 const double* dz, double* dx) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < shape.in; ++i) {
      double sum = 0;
      for (std::int64_t o = 0; o < shape.out; ++o)
        sum += weight[o * shape.in + i] * dz[b * shape.out + o];
      dx[b * shape.in + i] = sum;
    }
  }
}

// dw[o, i] = sum over b of dz[b, o] x[b, i]; db[o] = sum over b of dz[b, o].
void LinearBackwardWeightReference(const LinearShape& shape, std::int64_t batch, const double* x,
                                   const double* dz, double* dw, double* db) {
  for (std::int64_t o = 0; o < shape.out; ++o) {
    db[o] = 0;
    for (std::int64_t b = 0; b < batch; ++b) db[o] += dz[b * shape.out + o];
    for (std::int64_t i = 0; i < shape.in; ++i) {
      double sum = 0;
      for (std::int64_t b = 0; b < batch; ++b) sum += dz[b * shape.out + o] * x[b * shape.in + i];
      dw[o * shape.in + i] = sum;
    }
  }
}

}  // namespace troop
