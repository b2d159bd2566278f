#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/optim/optimizer_step.h"

// The twins of kernels/optim/optimizer_step.h: the same formulas with the same bits. All parameters
// lie in one array, so a step of a whole network is one launch. What changes from step to step
// (`step`) lies in device memory, so that a graph may hold the call. O(n), one pass over memory.
namespace troop::cuda {

// What lies in one such block is of one parameter.
inline constexpr std::int64_t kParameterBlock = 16;

// Arrays [n] f32 on the device, 16-byte aligned. value_bf16, where it is given, becomes value
// rounded to nearest even: what the next step's products take. go: 0 leaves everything as it is (an
// update that was refused); nullptr: always.
struct OptimizerArrays {
  std::int64_t n = 0;
  const float* gradient = nullptr;
  float* m = nullptr;  // RMSProp: nullptr when not centered; SGD: nullptr without momentum
  float* v = nullptr;
  float* value = nullptr;
  BF16* value_bf16 = nullptr;
  const std::int32_t* go = nullptr;
  // By blocks: those of a 1 are left alone by weight decay. nullptr: none is.
  const std::uint8_t* spared = nullptr;
};
void Adam(Stream& stream, const AdamStep* step, const OptimizerArrays& arrays);
void RmsProp(Stream& stream, const RmsPropStep* step, const OptimizerArrays& arrays);
void Sgd(Stream& stream, const SgdStep* step, const OptimizerArrays& arrays);

// *sum = Σ x², in f64; not finite exactly when an element isn't. partial: scratch of
// kSumSquaresParts. The order of the sum depends on n alone. left_out: blocks of a 1 don't count;
// nullptr: all do.
inline constexpr std::int64_t kSumSquaresParts = 1024;
void SumSquares(Stream& stream, std::int64_t n, const float* x, double* partial, double* sum,
                const std::uint8_t* left_out = nullptr);
// The same up to the parts, for a kernel that adds them up itself; how many they are.
std::int64_t SumSquaresInParts(Stream& stream, std::int64_t n, const float* x, double* partial,
                               const std::uint8_t* left_out = nullptr);

// target += tau (value - target); tau 1 copies. [n] each. target_bf16: as value_bf16.
void MoveTarget(Stream& stream, std::int64_t n, float tau, const float* value, float* target,
                BF16* target_bf16, const std::int32_t* go);

}  // namespace troop::cuda
