#pragma once

#include "kernels/recurrent/lstm_cell.h"
#include "kernels/simd/vec_loops.h"
#include "kernels/simd/vec_math.h"

// Loops of lstm_cell.h, compiled once per instruction set; see kernels/simd/vec.h. Each row holds
// four blocks of `hidden` values, one per gate; a loop iteration handles the same cells of all
// four.
namespace troop {
namespace {

// 1 / (1 + e^-x). Exp clamps its argument, so that large |x| gives 0 or 1.
inline Vec Sigmoid(Vec x) { return Set(1) / (Set(1) + Exp(Set(0) - x)); }

// One step; a row without a previous step skips the forget gate.
inline void Forward(const LstmStep& step, const float* bias, const float* c_before, float* gates,
                    float* c, float* h) {
  const std::int64_t n = step.hidden;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    // Rows are sorted: those with a previous step come first.
    const bool begins = row >= step.going;
    ForEachVec(n, [&](std::int64_t at, auto load, auto store) {
      // s of one gate: i is gate 0, f 1, g 2, o 3.
      const auto sum = [&](std::int64_t gate) {
        return load(gates + gate * n + at) + load(bias + gate * n + at);
      };
      const Vec i = Sigmoid(sum(0)), f = Sigmoid(sum(1)), g = Tanh(sum(2)), o = Sigmoid(sum(3));
      const Vec state = begins ? i * g : f * load(c_before + at) + i * g;
      store(gates + at, i);
      store(gates + n + at, f);
      store(gates + 2 * n + at, g);
      store(gates + 3 * n + at, o);
      store(c + at, state);
      store(h + at, o * Tanh(state));
    });
    gates += 4 * n;
    // c_before has no rows for sequences that start here.
    c_before += begins ? 0 : n;
    c += n;
    h += step.h_stride;
  }
}

// Gradients of one step, from the stored activations.
inline void Backward(const LstmStep& step, const float* c_before, const float* gates,
                     const float* c, const float* dh, float* dc, float* ds) {
  const std::int64_t n = step.hidden;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const bool begins = row >= step.going;
    ForEachVec(n, [&](std::int64_t at, auto load, auto store) {
      const Vec one = Set(1), i = load(gates + at), f = load(gates + n + at),
                g = load(gates + 2 * n + at), o = load(gates + 3 * n + at);
      // dc/dt of the equations in lstm_cell.h, from the stored activations: σ' = y (1 - y), tanh' =
      // 1 - y².
      const Vec t = Tanh(load(c + at)), d = load(dh + at);
      // The gradient of c: from the next step (dc) and through h.
      const Vec dstate = load(dc + at) + d * o * (one - t * t);
      const Vec before = begins ? Set(0) : load(c_before + at);
      store(ds + at, dstate * g * (i * (one - i)));
      store(ds + n + at, dstate * before * (f * (one - f)));
      store(ds + 2 * n + at, dstate * i * (one - g * g));
      store(ds + 3 * n + at, d * t * (o * (one - o)));
      // The gradient of c_before.
      store(dc + at, dstate * f);
    });
    gates += 4 * n;
    c_before += begins ? 0 : n;
    c += n;
    dh += step.h_stride;
    dc += n;
    ds += 4 * n;
  }
}

// The dot product accumulates in one register; its lanes are added at the end of a row.
inline void WeighBackward(std::int64_t rows, std::int64_t n, const float* weight, const float* x,
                          const float* dy, float* dweight, float* dx) {
  for (std::int64_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const Vec w = Set(weight[row]);
    Vec product = Set(0);
    ForEachVec(n, [&](std::int64_t at, auto load, auto store) {
      const Vec d = load(dy + at);
      product = MulAdd(d, load(x + at), product);
      store(dx + at, w * d);
    });
    dweight[row] = SumLanes(product);
  }
}

}  // namespace

namespace TROOP_ISA {
extern const LstmKernels kLstmKernels;
const LstmKernels kLstmKernels = {Forward, Backward, WeighBackward};
}  // namespace TROOP_ISA

}  // namespace troop
