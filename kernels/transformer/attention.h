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
// padding. All arrays are f32 and dense:
//   qkv: [T, 3, heads, width], the queries, keys and values; out: [T, heads, width];
//   lse: [T, heads], the log-sum-exp of each softmax; backward recomputes the softmax from it.
// If only R tokens have queries (AttentionBatch::asking), qkv is the keys and values [T, 2, heads,
// width] followed by the queries [R, heads, width]; out is [R, heads, width], lse [R, heads].
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

// Computes out and lse. O(Σ length · queries · width · heads). Results agree within rounding
// between instruction sets; on one machine a sequence gives the same bytes in any batch.
void AttentionForward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                      float* out, float* lse, float* scratch);
// Overwrites dqkv, laid out like qkv, with the gradient of qkv. out and lse are results of the
// forward pass. The complexity is the same.
void AttentionBackward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                       const float* out, const float* lse, const float* dout, float* dqkv,
                       float* scratch);

}  // namespace troop
