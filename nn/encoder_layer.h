#pragma once

#include <string>

#include "nn/transformer_parts.h"

namespace troop {

// One layer of an encoder, post-LN:
//   hidden = norm(x + drop(linear(attention(linear x))))
//   y = norm(hidden + drop(linear(gelu(linear hidden))))
// Immutable; any thread, with memory of its own. ALBERT uses one of them many times.
class EncoderLayer {
 public:
  // prefix: "bert.encoder.layer.0."; the names behind it are the family's.
  EncoderLayer(const TransformerOptions& options, const std::string& prefix, ParamLayout& layout);

  // What forward keeps for backward.
  struct Kept {
    float *qkv = nullptr, *context = nullptr, *lse = nullptr;
    NormPart::Kept sum1, sum2;
    float *hidden = nullptr, *z = nullptr, *g = nullptr, *out = nullptr;
  };
  // Of T tokens: O(T (9 hidden + 2 intermediate)) floats, of which a rank has its share of 4 hidden
  // and 2 intermediate.
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;

  // Memory of a step, of the caller's.
  struct Scratch {
    float *attention = nullptr, *drop = nullptr;
    float *wide = nullptr, *context = nullptr, *sum = nullptr;  // backward alone
  };
  Scratch TakeScratch(Arena& arena, std::int64_t tokens, std::int64_t longest) const;

  // x → kept.out, [T, hidden]. `use`: of how many, counted from 0, for dropout.
  void Forward(const Params& params, const TokenBatch& batch, std::int64_t use, const float* x,
               const Kept& kept, const Scratch& scratch) const;
  // dy [T, hidden] becomes dx. x, kept: of the Forward.
  void Backward(const Params& params, const TokenBatch& batch, std::int64_t use, const float* x,
                const Kept& kept, const Scratch& scratch, float* dy) const;

 private:
  AttentionShape Attention(const Params& params) const;
  static AttentionBatch AttentionOf(const TokenBatch& batch, std::int64_t use);

  TransformerConfig config_;
  Share heads_;  // of all
  LinearPart qkv_, attention_out_, ffn_, ffn_out_;
  NormPart norm1_, norm2_;
};

// Sites of dropout: the embeddings' is 0, then three for each use of a layer.
inline std::uint32_t SiteOf(std::int64_t use, std::uint32_t which) {
  return std::uint32_t(1 + 3 * use) + which;
}

}  // namespace troop
