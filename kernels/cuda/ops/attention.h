#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/ops/dropout.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Multi-head attention within each sequence, the GPU counterpart of
// kernels/transformer/attention.h:
//   softmax(Q Kᵀ / √width) V, with dropout of softmax elements.
// kBF16: products on tensor cores, sums and softmax in f32 (FlashAttention-2, Dao 2023). REQUIRES:
// width is 64, compute capability 8.0. kF32: without tensor cores; width is at most 256.
// Scores are never written to memory. qkv: [T, 3, heads, width] and out: [T, heads, width] have
// `dtype` and are 16-byte aligned. lse: [T, heads] f32, the natural logarithm of each softmax's
// sum. A sequence gives the same bytes in any batch. O(Σ length² width heads).
struct AttentionForm {
  std::int64_t heads = 0, width = 64;
  std::int64_t first_head = 0;  // index of head 0 among all heads if tensor-parallel, for dropout
  DType dtype = DType::kBF16;
  Dropout dropout;
  // KeptScoresWords() words of device memory, 16-byte aligned; required for kBF16 with dropout.
  // Forward draws the mask, one bit per score, and backward reads it.
  std::uint32_t* kept_scores = nullptr;
};
inline constexpr std::int64_t kTensorCoreWidth = 64, kAttentionWidthMax = 256;

// Number of 32-bit words of AttentionForm::kept_scores: the mask, and padding of 16 words per
// sequence.
constexpr std::int64_t KeptScoresWords(std::int64_t sequences, std::int64_t tokens,
                                       std::int64_t longest, std::int64_t heads) {
  return heads * tokens * longest / 32 + 16 * (sequences + 1);
}

// Arguments of AttentionForward. Arrays of form.dtype, except lse.
struct AttentionForwardArgs {
  PackedSequences batch;  // T tokens
  AttentionForm form;
  const void* qkv = nullptr;  // [T, 3, heads, width]
  void* out = nullptr;        // [T, heads, width], overwritten
  float* lse = nullptr;       // [T, heads], overwritten
};
// Writes out and lse.
void AttentionForward(Stream& stream, const AttentionForwardArgs& args);

// Arguments of AttentionBackward. Arrays of form.dtype, except lse and delta.
struct AttentionBackwardArgs {
  PackedSequences batch;  // T tokens
  AttentionForm form;
  const void* qkv = nullptr;   // [T, 3, heads, width]
  const void* out = nullptr;   // [T, heads, width], from AttentionForward
  const float* lse = nullptr;  // [T, heads], from AttentionForward
  const void* dout = nullptr;  // [T, heads, width]
  void* dqkv = nullptr;        // [T, 3, heads, width], overwritten
  float* delta = nullptr;      // [T, heads], scratch
};
// Scores are computed twice: for the gradient of the queries, and for that of keys and values. No
// two blocks add to the same element, so the same input gives the same bytes.
void AttentionBackward(Stream& stream, const AttentionBackwardArgs& args);

// The kF32 implementation (attention_fp32.cu).
void PlainAttentionForward(Stream& stream, const AttentionForwardArgs& args);
void PlainAttentionBackward(Stream& stream, const AttentionBackwardArgs& args);

}  // namespace troop::cuda
