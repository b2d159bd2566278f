#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/optim/optimizer_step.h"

// GPU counterparts of kernels/optim/optimizer_step.h: the same formulas with the same bits. All
// parameters are in one array, so one launch updates a whole network. `step`, which changes with
// each update, is device memory, so that a captured graph may contain the call. O(n), one pass over
// memory.
namespace troop::cuda {

// Elements per block; each parameter starts a new block.
inline constexpr std::int64_t kParameterBlock = 16;

// Arrays [n] f32 of device memory, 16-byte aligned. value_bf16, if set, receives value rounded to
// nearest even, for the products of the next step. go: if it is 0, nothing changes (a rejected
// update); nullptr: the update is always applied.
struct OptimizerArrays {
  std::int64_t n = 0;
  const float* gradient = nullptr;
  float* m = nullptr;  // RMSProp: nullptr when not centered; SGD: nullptr without momentum
  float* v = nullptr;
  float* value = nullptr;
  BF16* value_bf16 = nullptr;
  const std::int32_t* go = nullptr;
  // [n / kParameterBlock]: blocks with 1 are excluded from weight decay; nullptr: none.
  const std::uint8_t* spared = nullptr;
};
// One optimizer step each.
void Adam(Stream& stream, const AdamStep* step, const OptimizerArrays& arrays);
void RmsProp(Stream& stream, const RmsPropStep* step, const OptimizerArrays& arrays);
void Sgd(Stream& stream, const SgdStep* step, const OptimizerArrays& arrays);

inline constexpr std::int64_t kSumSquaresParts = 1024;
// Arguments of SumSquares and SumSquaresInParts.
struct SumSquaresArgs {
  std::int64_t n = 0;
  const float* x = nullptr;  // [n]
  // [n / kParameterBlock]: blocks with 1 are excluded; nullptr: none.
  const std::uint8_t* left_out = nullptr;
  double* partial = nullptr;  // [kSumSquaresParts], scratch; of SumSquaresInParts, its result
  double* sum = nullptr;      // one element, overwritten; only for SumSquares
};
// *sum = Σ x² in f64; not finite if and only if an element is not. The order of the sum depends
// only on n.
void SumSquares(Stream& stream, const SumSquaresArgs& args);
// The partial sums of SumSquares, for a kernel that adds them itself. Returns their number.
std::int64_t SumSquaresInParts(Stream& stream, const SumSquaresArgs& args);

// Arguments of MoveTarget.
struct MoveTargetArgs {
  std::int64_t n = 0;
  float tau = 1;
  const float* value = nullptr;      // [n]
  float* target = nullptr;           // [n], changed in place
  BF16* target_bf16 = nullptr;       // [n], target rounded to nearest even; nullptr: not needed
  const std::int32_t* go = nullptr;  // as in OptimizerArrays
};
// target += tau (value - target); tau 1 copies.
void MoveTarget(Stream& stream, const MoveTargetArgs& args);

}  // namespace troop::cuda
