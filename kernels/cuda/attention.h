#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device.h"

namespace troop::cuda {

// Sequences one behind the other, without padding: s is the tokens starts[s] … starts[s + 1] - 1
// of T.
struct PackedSequences {
  const std::int32_t* starts = nullptr;  // on the device, [sequences + 1], rising from 0 to T
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;   // T
  std::int64_t longest = 0;  // tokens, at least those of the longest
};

// Multi-head attention of heads of 64 numbers within each sequence (kernels/attention.h):
// softmax(Q Kᵀ / 8) V, without dropout. Products of bf16 on tensor cores, sums and the softmax in
// f32; scores never come to memory (Dao 2023, FlashAttention-2). Needs compute capability 8.0.
//   qkv: [T, 3, heads, 64]; out: [T, heads, 64], 16-byte aligned; lse: [T, heads] f32, the natural
//   logarithm of each softmax's sum.
// A sequence's bytes don't depend on what it is packed with. O(Σ length² 64 heads).
void AttentionForward(Stream& stream, const PackedSequences& batch, std::int64_t heads,
                      const BF16* qkv, BF16* out, float* lse);

// dqkv, as qkv, overwritten. out, lse: of the forward; delta: [T, heads] f32, worked in. Scores are
// made twice, once for the queries' gradients and once for the others': nothing is added to by
// several blocks, so the same input gives the same bytes.
void AttentionBackward(Stream& stream, const PackedSequences& batch, std::int64_t heads,
                       const BF16* qkv, const BF16* out, const float* lse, const BF16* dout,
                       BF16* dqkv, float* delta);

}  // namespace troop::cuda
