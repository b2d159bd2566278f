#pragma once

#include <span>
#include <string>

#include "nn/transformer/transformer_parts.h"

namespace troop {

// One encoder layer, post-LN:
//   hidden = norm(x + drop(linear(attention(linear x))))
//   y = norm(hidden + drop(linear(gelu(linear hidden))))
// Immutable: several threads may use one layer at the same time, each with separate memory. ALBERT
// applies one layer many times.
class EncoderLayer {
 public:
  // prefix: start of the parameter names, such as "bert.encoder.layer.0."; the rest of the names
  // depends on the family.
  EncoderLayer(const TransformerOptions& options, const std::string& prefix, ParamLayout& layout);

  // Activations that Forward keeps for Backward.
  struct Kept {
    float *qkv = nullptr, *context = nullptr, *lse = nullptr;
    NormPart::Kept sum1, sum2;
    float *hidden = nullptr, *z = nullptr, *g = nullptr, *out = nullptr;
    float* asked = nullptr;  // [R, hidden], input rows of the R requested tokens; set by the caller
  };
  // Takes memory for T tokens, of which `rows` are requested. A requested token needs about 8
  // hidden + 2 intermediate floats; 4 hidden and 2 intermediate of these are divided among the
  // ranks of a tensor-parallel group. A token that is not requested needs 2 hidden, also divided.
  Kept TakeKept(Arena& arena, std::int64_t tokens, std::int64_t rows) const;

  // Temporary memory of a step, from the caller. `context` and `drop` also serve the embeddings and
  // the head, whose rows may be wider than the layer's share of the heads.
  struct Scratch {
    float *attention = nullptr, *drop = nullptr;
    float *wide = nullptr, *context = nullptr, *sum = nullptr;  // backward only
  };
  Scratch TakeScratch(Arena& arena, std::int64_t tokens, std::int64_t longest) const;

  // Arguments of one application of the layer to a batch of T tokens; borrowed for a call.
  struct Use {
    const Params& params;
    const TokenBatch& batch;
    std::int64_t number = 0;   // from 0 for the first application; selects the dropout masks
    AskedTokens asked;         // the R requested tokens; empty: all
    const float* x = nullptr;  // [T, hidden], the input
    const Kept& kept;
    const Scratch& scratch;
  };
  // Maps x to kept.out: [T, hidden], or [R, hidden] for the requested tokens.
  void Forward(const Use& use) const;
  // use: that of the Forward call. dy: the gradient of kept.out, in its shape; overwritten. dx:
  // [T, hidden]; REQUIRES: dx is `dy` if all tokens are requested.
  void Backward(const Use& use, float* dy, float* dx) const;

 private:
  AttentionShape Attention(const Params& params) const;
  static AttentionBatch AttentionOf(const TokenBatch& batch, std::int64_t use,
                                    const AskedTokens& asked);
  // Dropout of x [R or T, hidden], the output of a half of the layer, or of its gradient. which: as
  // in SiteOf.
  DropRowsArgs HiddenDropout(const Use& use, std::uint32_t which, float* x) const;
  // Slices of qkv_.
  LinearPart Queries() const;
  LinearPart KeysAndValues() const;
  // REQUIRES: use.asked.
  void BackwardAsked(const Use& use, const float* dqkv, float* dy, float* dx) const;

  TransformerConfig config_;
  Share heads_;  // this rank's share of the heads
  LinearPart qkv_, attention_out_, ffn_, ffn_out_;
  NormPart norm1_, norm2_;
};

// Number of a dropout site: 0 is that of the embeddings; each application of a layer has three.
// `which`: 0: attention weights; 1: output of the attention; 2: output of the feed-forward part.
inline std::uint32_t SiteOf(std::int64_t use, std::uint32_t which) {
  return std::uint32_t(1 + 3 * use) + which;
}

}  // namespace troop
