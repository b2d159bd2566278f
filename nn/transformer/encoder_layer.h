#pragma once

#include <span>
#include <string>

#include "nn/transformer/transformer_parts.h"

namespace troop {

// One encoder layer, post-LN:
//   hidden = norm(x + drop(linear(attention(linear x))))
//   y = norm(hidden + drop(linear(gelu(linear hidden))))
// Immutable; usable on any thread with its own memory. ALBERT applies one layer many times.
class EncoderLayer {
 public:
  // prefix: "bert.encoder.layer.0."; the names after it depend on the family.
  EncoderLayer(const TransformerOptions& options, const std::string& prefix, ParamLayout& layout);

  // Activations that Forward keeps for Backward.
  struct Kept {
    float *qkv = nullptr, *context = nullptr, *lse = nullptr;
    NormPart::Kept sum1, sum2;
    float *hidden = nullptr, *z = nullptr, *g = nullptr, *out = nullptr;
    float* asked = nullptr;  // [R, hidden], input rows of the R requested tokens; caller's memory
  };
  // Memory for T tokens, `rows` of them requested: O(T (9 hidden + 2 intermediate)) floats, of
  // which a rank holds its share of 4 hidden and 2 intermediate; tokens that are not requested need
  // 2 hidden.
  Kept TakeKept(Arena& arena, std::int64_t tokens, std::int64_t rows) const;

  // Temporary memory of a step, from the caller.
  struct Scratch {
    float *attention = nullptr, *drop = nullptr;
    float *wide = nullptr, *context = nullptr, *sum = nullptr;  // backward only
  };
  Scratch TakeScratch(Arena& arena, std::int64_t tokens, std::int64_t longest) const;

  // x [T, hidden] → kept.out, [T, hidden] or the rows of the requested tokens. `use`: index of this
  // application of the layer, from 0, which selects the dropout masks.
  void Forward(const Params& params, const TokenBatch& batch, std::int64_t use,
               const AskedTokens& asked, const float* x, const Kept& kept,
               const Scratch& scratch) const;
  // dy, the gradient of Forward's output, is overwritten; dx: [T, hidden], `dy` itself if all
  // tokens are requested. x, kept: from the Forward.
  void Backward(const Params& params, const TokenBatch& batch, std::int64_t use,
                const AskedTokens& asked, const float* x, const Kept& kept, const Scratch& scratch,
                float* dy, float* dx) const;

 private:
  AttentionShape Attention(const Params& params) const;
  static AttentionBatch AttentionOf(const TokenBatch& batch, std::int64_t use,
                                    const AskedTokens& asked);
  // Slices of qkv_.
  LinearPart Queries() const;
  LinearPart KeysAndValues() const;
  void BackwardAsked(const Params& params, std::int64_t tokens, std::span<const std::int32_t> asked,
                     const float* x, const Kept& kept, const float* dqkv, float* dy,
                     float* dx) const;

  TransformerConfig config_;
  Share heads_;  // this rank's share of the heads
  LinearPart qkv_, attention_out_, ffn_, ffn_out_;
  NormPart norm1_, norm2_;
};

// Numbers of dropout sites: 0 for the embeddings, then three per application of a layer.
inline std::uint32_t SiteOf(std::int64_t use, std::uint32_t which) {
  return std::uint32_t(1 + 3 * use) + which;
}

}  // namespace troop
