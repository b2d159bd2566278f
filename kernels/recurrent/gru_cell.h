#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// One time step of GRU cells (Cho et al. 2014, in the form of PyTorch's nn.GRU), one row per
// sequence:
//   r = σ(x_r + u_r), z = σ(x_z + u_z), q = u_n, n = tanh(x_n + r q);  h = (1 - z) n + z h_before
// Sums have PyTorch's order r, z, n. f32, dense, any alignment; arrays must not overlap.
struct GruForwardArgs {
  std::int64_t rows = 0, hidden = 0;
  // [3 hidden]: biases of x and of u.
  const float *bias_x = nullptr, *bias_u = nullptr;
  // [rows, 3 hidden] without the biases: products of the weights with the input and with h_before.
  const float *x = nullptr, *u = nullptr;
  const float* h_before = nullptr;  // [rows, hidden]
  float* gates = nullptr;           // out, [rows, 4 hidden]: r, z, n, q
  float* h = nullptr;               // out, [rows, hidden]
};
struct GruBackwardArgs {
  std::int64_t rows = 0, hidden = 0;
  const float *gates = nullptr, *h_before = nullptr;  // as in the forward pass
  const float* dh = nullptr;                          // [rows, hidden]: the whole gradient of h
  float *dx = nullptr, *du = nullptr;  // out, [rows, 3 hidden]: gradients of the sums
  float* dh_before = nullptr;          // [rows, hidden]: the gradient through z h_before is added
};

// Function table. Elementwise, the same bits at all levels. O(elements), one pass over memory. NaN
// stays NaN.
struct GruKernels {
  void (*forward)(const GruForwardArgs& args);
  void (*backward)(const GruBackwardArgs& args);
};
const GruKernels& GruKernelsFor(CpuLevel level);

}  // namespace troop
