#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor/dtype.h"
#include "kernels/transformer/dropout.h"

namespace troop {

// Multi-head attention (Vaswani et al. 2017, sec. 3.2) within each sequence of a packed batch:
//   softmax(Q Kᵀ / √width) V, elements of the softmax dropped at `rate`.
// Sequence s is the tokens starts[s] … starts[s + 1] - 1 (the field's cu_seqlens): no padding.
//   qkv: [T, 3, heads, width]: queries, keys, values; out: [T, heads, width]; lse: [T, heads], the
//   logarithm of each softmax's sum, all that backward needs of it. f32, dense.
// Where R tokens alone ask, qkv is [T, 2, heads, width], keys and values, and behind them [R,
// heads,
//   width], the queries; out: [R, heads, width]; lse: [R, heads].
struct AttentionShape {
  std::int64_t heads = 0, width = 0;
  std::int64_t first_head = 0;  // of all, where heads are split: dropout counts through all
  float rate = 0;
  DType compute = DType::kF32;  // kBF16: of the products, as MatMulBF16
};
struct AttentionBatch {
  std::span<const std::int32_t> starts;  // [sequences + 1], rising from 0 to T
  std::span<const DropoutKey> dropout;   // [sequences]; empty: nothing is dropped
  std::uint32_t site = 0;
  std::optional<std::span<const std::int32_t>> asking;  // [R], rising tokens; without: all
};
// Floats of scratch for sequences of at most `length` tokens. O(length): scores are made for 64
// queries at a time.
std::int64_t AttentionScratch(std::int64_t length);
std::int64_t LongestSequence(std::span<const std::int32_t> starts);

// O(Σ length · asking · width heads) each. Within rounding between instruction sets; on one machine
// a sequence gives the same bytes whatever it is packed with.
void AttentionForward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                      float* out, float* lse, float* scratch);
// dqkv, laid out as qkv, is overwritten. out, lse: of the forward.
void AttentionBackward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                       const float* out, const float* lse, const float* dout, float* dqkv,
                       float* scratch);

}  // namespace troop
