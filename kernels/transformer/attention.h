#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor/dtype.h"
#include "kernels/transformer/dropout.h"

namespace troop {

// Multi-head attention (Vaswani et al. 2017, sec. 3.2) within each sequence of a packed batch:
//   softmax(Q Kᵀ / √width) V, with dropout of softmax elements at `rate`.
// Sequence s is the tokens starts[s] … starts[s + 1] - 1 (cu_seqlens in FlashAttention), without
// padding. All arrays are f32 and dense. R tokens have queries: all T, or those that
// AttentionBatch::asking names; then qkv is the keys and values [T, 2, heads, width], followed by
// the queries [R, heads, width].
struct AttentionShape {
  std::int64_t heads = 0, width = 0;
  std::int64_t first_head = 0;  // index of head 0 among all heads if tensor-parallel, for dropout
  float rate = 0;
  DType compute = DType::kF32;  // kBF16: products as in MatMulBF16
};
// Sequences of one call, and the keys of their dropout masks.
struct AttentionBatch {
  std::span<const std::int32_t> starts;  // [sequences + 1], ascending from 0 to T
  std::span<const DropoutKey> dropout;   // [sequences]; empty: no dropout
  std::uint32_t site = 0;
  std::optional<std::span<const std::int32_t>> asking;  // [R] ascending tokens; unset: all
};
// Number of scratch floats for sequences of at most `length` tokens. O(length): scores are computed
// for 64 queries at a time.
std::int64_t AttentionScratch(std::int64_t length);
// Length in tokens of the longest sequence.
std::int64_t LongestSequence(std::span<const std::int32_t> starts);

// Arguments of AttentionForward.
struct AttentionForwardArgs {
  AttentionShape shape;
  AttentionBatch batch;
  const float* qkv = nullptr;  // [T, 3, heads, width], the queries, keys and values of each token
  float* out = nullptr;        // [R, heads, width], overwritten
  float* lse = nullptr;        // [R, heads], overwritten: the log-sum-exp of each softmax
  float* scratch = nullptr;    // [AttentionScratch(longest sequence)]
};
// Computes out and lse. O(Σ length · queries · width · heads). Results agree within rounding
// between instruction sets; on one machine a sequence gives the same bytes in any batch.
void AttentionForward(const AttentionForwardArgs& args);

// Arguments of AttentionBackward. shape, batch, qkv, out and lse are those of the forward pass.
struct AttentionBackwardArgs {
  AttentionShape shape;
  AttentionBatch batch;
  const float* qkv = nullptr;   // [T, 3, heads, width]
  const float* out = nullptr;   // [R, heads, width]
  const float* lse = nullptr;   // [R, heads]; the softmax is recomputed from it
  const float* dout = nullptr;  // [R, heads, width]
  float* dqkv = nullptr;        // in the layout of qkv, overwritten
  float* scratch = nullptr;     // [AttentionScratch(longest sequence)]
};
// Computes dqkv, the gradient of qkv. The complexity is that of AttentionForward.
void AttentionBackward(const AttentionBackwardArgs& args);

}  // namespace troop
