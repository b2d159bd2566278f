#pragma once

#include "kernels/recurrent/gru_cell.h"
#include "kernels/simd/vec_loops.h"
#include "kernels/simd/vec_math.h"

// Loops of gru_cell.h, compiled once per instruction set; see kernels/simd/vec.h. Each row holds
// one block of `hidden` values per gate; a loop iteration handles the same cells of all of them.
namespace troop {
namespace {

// 1 / (1 + e^-x). Exp clamps its argument, so that large |x| gives 0 or 1.
inline Vec GruSigmoid(Vec x) { return Set(1) / (Set(1) + Exp(Set(0) - x)); }

// One step. q is kept without r, since the gradient of r needs it.
inline void GruForward(const GruForwardArgs& args) {
  const std::int64_t n = args.hidden;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const float *const x = args.x + row * 3 * n, *const u = args.u + row * 3 * n;
    const float* const h_before = args.h_before + row * n;
    float *const gates = args.gates + row * 4 * n, *const h = args.h + row * n;
    ForEachVec(n, [&](std::int64_t at, auto load, auto store) {
      const auto input = [&](std::int64_t gate) {
        return load(x + gate * n + at) + load(args.bias_x + gate * n + at);
      };
      const auto recurrent = [&](std::int64_t gate) {
        return load(u + gate * n + at) + load(args.bias_u + gate * n + at);
      };
      const Vec r = GruSigmoid(input(0) + recurrent(0)), z = GruSigmoid(input(1) + recurrent(1)),
                q = recurrent(2), candidate = Tanh(input(2) + r * q);
      store(gates + at, r);
      store(gates + n + at, z);
      store(gates + 2 * n + at, candidate);
      store(gates + 3 * n + at, q);
      store(h + at, (Set(1) - z) * candidate + z * load(h_before + at));
    });
  }
}

// Gradients of one step, from the stored activations: σ' = y (1 - y), tanh' = 1 - y².
inline void GruBackward(const GruBackwardArgs& args) {
  const std::int64_t n = args.hidden;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const float *const gates = args.gates + row * 4 * n, *const h_before = args.h_before + row * n;
    const float* const dh = args.dh + row * n;
    float *const dx = args.dx + row * 3 * n, *const du = args.du + row * 3 * n;
    float* const dh_before = args.dh_before + row * n;
    ForEachVec(n, [&](std::int64_t at, auto load, auto store) {
      const Vec one = Set(1), r = load(gates + at), z = load(gates + n + at),
                candidate = load(gates + 2 * n + at), q = load(gates + 3 * n + at);
      const Vec d = load(dh + at);
      const Vec dn = d * (one - z) * (one - candidate * candidate);
      const Vec dz = d * (load(h_before + at) - candidate) * (z * (one - z));
      const Vec dr = dn * q * (r * (one - r));
      // r and z depend on both sums in the same way; n depends on u through r q.
      store(dx + at, dr);
      store(du + at, dr);
      store(dx + n + at, dz);
      store(du + n + at, dz);
      store(dx + 2 * n + at, dn);
      store(du + 2 * n + at, dn * r);
      store(dh_before + at, load(dh_before + at) + d * z);
    });
  }
}

}  // namespace

namespace TROOP_ISA {
extern const GruKernels kGruKernels;
const GruKernels kGruKernels = {GruForward, GruBackward};
}  // namespace TROOP_ISA

}  // namespace troop
