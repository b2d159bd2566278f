#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/ops/dropout.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Multi-head attention within each sequence (kernels/transformer/attention.h):
//   softmax(Q Kᵀ / √width) V, elements of the softmax dropped.
//   kBF16: products on tensor cores, sums and the softmax in f32 (Dao 2023, FlashAttention-2);
//   width is 64. Needs compute capability 8.0. kF32: without tensor cores; width is at most 256.
// Scores never come to memory. qkv: [T, 3, heads, width]; out: [T, heads, width], 16-byte aligned;
// both of dtype. lse: [T, heads] f32, the natural logarithm of each softmax's sum.
// A sequence's bytes don't depend on what it is packed with. O(Σ length² width heads).
struct AttentionForm {
  std::int64_t heads = 0, width = 64;
  std::int64_t first_head = 0;  // of a model's: what is dropped is drawn by the model's numbers
  DType dtype = DType::kBF16;
  Dropout dropout;
  // Where kBF16 drops: KeptScoresWords() words of device memory, 16-byte aligned. The forward draws
  // which scores are kept, a bit each, and the backward takes them from there.
  std::uint32_t* kept_scores = nullptr;
};
inline constexpr std::int64_t kTensorCoreWidth = 64, kAttentionWidthMax = 256;

constexpr std::int64_t KeptScoresWords(std::int64_t sequences, std::int64_t tokens,
                                       std::int64_t longest, std::int64_t heads) {
  return heads * tokens * longest / 32 + 16 * (sequences + 1);
}

void AttentionForward(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
                      const void* qkv, void* out, float* lse);

// dqkv, as qkv, overwritten. out, lse: of the forward; delta: [T, heads] f32, worked in. Scores are
// made twice, once for the queries' gradients and once for the others': nothing is added to by
// several blocks, so the same input gives the same bytes.
void AttentionBackward(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
                       const void* qkv, const void* out, const float* lse, const void* dout,
                       void* dqkv, float* delta);

// Those of kF32 (attention_plain.cu).
void PlainAttentionForward(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
                           const float* qkv, float* out, float* lse);
void PlainAttentionBackward(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
                            const float* qkv, const float* out, const float* lse, const float* dout,
                            float* dqkv, float* delta);

}  // namespace troop::cuda
