#pragma once

#include <span>
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
    float* asked = nullptr;  // [R, hidden], of who asks for R tokens: their x; the caller's
  };
  // Of T tokens, of which `rows` are asked for: O(T (9 hidden + 2 intermediate)) floats, of which a
  // rank has its share of 4 hidden and 2 intermediate; of those that are not asked for 2 hidden.
  Kept TakeKept(Arena& arena, std::int64_t tokens, std::int64_t rows) const;

  // Memory of a step, of the caller's.
  struct Scratch {
    float *attention = nullptr, *drop = nullptr;
    float *wide = nullptr, *context = nullptr, *sum = nullptr;  // backward alone
  };
  Scratch TakeScratch(Arena& arena, std::int64_t tokens, std::int64_t longest) const;

  // x [T, hidden] → kept.out, [T, hidden] or of the tokens asked for. `use`: of how many, counted
  // from 0, for dropout.
  void Forward(const Params& params, const TokenBatch& batch, std::int64_t use,
               const AskedTokens& asked, const float* x, const Kept& kept,
               const Scratch& scratch) const;
  // dy, of what Forward gave, is used up; dx: [T, hidden], `dy` itself where all are asked for. x,
  // kept: of the Forward.
  void Backward(const Params& params, const TokenBatch& batch, std::int64_t use,
                const AskedTokens& asked, const float* x, const Kept& kept, const Scratch& scratch,
                float* dy, float* dx) const;

 private:
  AttentionShape Attention(const Params& params) const;
  static AttentionBatch AttentionOf(const TokenBatch& batch, std::int64_t use,
                                    const AskedTokens& asked);
  // The parts of qkv_.
  LinearPart Queries() const;
  LinearPart KeysAndValues() const;
  void BackwardAsked(const Params& params, std::int64_t tokens, std::span<const std::int32_t> asked,
                     const float* x, const Kept& kept, const float* dqkv, float* dy,
                     float* dx) const;

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
