#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// One time step of LSTM cells side by side (Hochreiter & Schmidhuber 1997, with the forget gate of
// Gers et al. 2000), a row for each sequence:
//   i = σ(sᵢ), f = σ(s_f), g = tanh(s_g), o = σ(s_o);  c = f c_before + i g;  h = o tanh(c)
// with s = gates + bias, [rows, 4 hidden] in the order i, f, g, o (PyTorch's), where gates are what
// products made of the input and of h before. The first `going` rows have a step before this one;
// the others begin with c_before = 0.
struct LstmStep {
  std::int64_t rows = 0, going = 0, hidden = 0;
  std::int64_t h_stride = 0;  // from row to row of h and dh; all else is dense
};

// The cells are elementwise and give the same bits at all levels; the dot products of a row have as
// many lanes as a register. f32, any alignment; arrays don't overlap. O(elements), one pass over
// memory. NaN stays NaN.
struct LstmKernels {
  // gates: the sums, without the bias, and then i, f, g, o, which backward takes. bias: [4 hidden];
  // c_before: [going, hidden]; c: [rows, hidden].
  void (*forward)(const LstmStep& step, const float* bias, const float* c_before, float* gates,
                  float* c, float* h);
  // gates, c: of the forward. dh: the whole gradient of h; dc [rows, hidden]: of c without what
  // comes by h, and then of c_before (nothing that counts where a row begins); ds: of s.
  void (*backward)(const LstmStep& step, const float* c_before, const float* gates, const float* c,
                   const float* dh, float* dc, float* ds);
  // Of y = weight x, row by row and added up elsewhere: dweight [rows] = dy·x, and dx = weight dy.
  // x, dy, dx: [rows, n].
  void (*weigh_backward)(std::int64_t rows, std::int64_t n, const float* weight, const float* x,
                         const float* dy, float* dweight, float* dx);
};
const LstmKernels& LstmKernelsFor(CpuLevel level);

}  // namespace troop
