#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// One time step of LSTM cells (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al.
// 2000), one row per sequence:
//   i = σ(sᵢ), f = σ(s_f), g = tanh(s_g), o = σ(s_o);  c = f c_before + i g;  h = o tanh(c)
// with s = gates + bias, [rows, 4 hidden] in PyTorch's order i, f, g, o. `gates` holds the products
// of the weights with the input and with the previous h. The first `going` rows continue from the
// previous step; the others start with c_before = 0.
struct LstmStep {
  std::int64_t rows = 0, going = 0, hidden = 0;
  std::int64_t h_stride = 0;  // elements between rows of h and dh; other arrays are dense
};

// Function table. The cells are elementwise and give the same bits at all levels; the dot products
// of weigh_backward have one partial sum per register lane, so levels differ within rounding. f32,
// any alignment, arrays must not overlap. O(elements), one pass over memory. NaN stays NaN.
struct LstmKernels {
  // gates: in: the sums without the bias; out: i, f, g, o, as backward takes them. bias: [4
  // hidden]; c_before: [going, hidden]; c: [rows, hidden].
  void (*forward)(const LstmStep& step, const float* bias, const float* c_before, float* gates,
                  float* c, float* h);
  // gates, c: results of forward. dh: the whole gradient of h. dc [rows, hidden]: in: the gradient
  // of c except for the part through h; out: the gradient of c_before (meaningless for rows that
  // start here). ds: the gradient of s.
  void (*backward)(const LstmStep& step, const float* c_before, const float* gates, const float* c,
                   const float* dh, float* dc, float* ds);
  // Backward of y = weight x, where weight [rows] scales each row: dweight [rows] = dy·x and dx =
  // weight dy. x, dy, dx: [rows, n].
  void (*weigh_backward)(std::int64_t rows, std::int64_t n, const float* weight, const float* x,
                         const float* dy, float* dweight, float* dx);
};
const LstmKernels& LstmKernelsFor(CpuLevel level);

}  // namespace troop
