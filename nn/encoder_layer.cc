#include "nn/encoder_layer.h"

#include <algorithm>

namespace troop {
namespace {

// As the package transformers calls them.
struct LayerNames {
  const char *query, *key, *value, *attention_out, *norm1, *ffn, *ffn_out, *norm2;
};
constexpr LayerNames kBertNames = {"attention.self.query",
                                   "attention.self.key",
                                   "attention.self.value",
                                   "attention.output.dense",
                                   "attention.output.LayerNorm",
                                   "intermediate.dense",
                                   "output.dense",
                                   "output.LayerNorm"};
constexpr LayerNames kAlbertNames = {"attention.query", "attention.key",        "attention.value",
                                     "attention.dense", "attention.LayerNorm",  "ffn",
                                     "ffn_output",      "full_layer_layer_norm"};

// Queries, keys and values of the rank's heads as one linear layer: hidden is a multiple of 16, so
// the three weights lie without gaps.
LinearPart MakeQkv(ParamLayout& layout, const std::string& prefix, const LayerNames& names,
                   std::int64_t hidden, const Extent& heads) {
  LinearPart part;
  part.in = hidden;
  part.out = 3 * heads.count();
  part.cut_out = heads.cut();
  part.biases = 3;
  const Shape shape{heads.count(), hidden};
  const ParamSpec::Slice slice = heads.Along(0);
  part.weight = layout.Weight(prefix + names.query + ".weight", shape, slice);
  layout.Weight(prefix + names.key + ".weight", shape, slice);
  layout.Weight(prefix + names.value + ".weight", shape, slice);
  part.bias = layout.Bias(prefix + names.query + ".bias", heads.count(), slice);
  layout.Bias(prefix + names.key + ".bias", heads.count(), slice);
  layout.Bias(prefix + names.value + ".bias", heads.count(), slice);
  return part;
}

const LayerNames& NamesOf(const TransformerConfig& config) {
  return config.family == TransformerConfig::Family::kBert ? kBertNames : kAlbertNames;
}

const TransformerKernels& Kernels() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

}  // namespace

EncoderLayer::EncoderLayer(const TransformerOptions& options, const std::string& prefix,
                           ParamLayout& layout)
    : config_(options.config), heads_(ShareOf(config_.heads, options.tensor)) {
  const TransformerConfig& config = config_;
  const LayerNames& names = NamesOf(config);
  const std::int64_t hidden = config.hidden, width = hidden / config.heads;
  const Extent heads(hidden, {heads_.first * width, heads_.count * width});
  const Extent wide(config.intermediate, ShareOf(config.intermediate, options.tensor));
  qkv_ = MakeQkv(layout, prefix, names, hidden, heads);
  attention_out_ = LinearPart(layout, prefix + names.attention_out, heads, hidden);
  norm1_ = NormPart(layout, prefix + names.norm1, hidden, config.epsilon);
  ffn_ = LinearPart(layout, prefix + names.ffn, hidden, wide);
  ffn_out_ = LinearPart(layout, prefix + names.ffn_out, wide, hidden);
  norm2_ = NormPart(layout, prefix + names.norm2, hidden, config.epsilon);
}

EncoderLayer::Kept EncoderLayer::TakeKept(Arena& arena, std::int64_t tokens) const {
  const std::int64_t narrow = tokens * config_.hidden, wide = tokens * ffn_.out;
  Kept kept;
  kept.qkv = TakeFloats(arena, tokens * qkv_.out);
  kept.context = TakeFloats(arena, tokens * attention_out_.in);
  kept.lse = TakeFloats(arena, tokens * heads_.count);
  kept.sum1 = norm1_.TakeKept(arena, tokens);
  kept.hidden = TakeFloats(arena, narrow);
  kept.z = TakeFloats(arena, wide);
  kept.g = TakeFloats(arena, wide);
  kept.sum2 = norm2_.TakeKept(arena, tokens);
  kept.out = TakeFloats(arena, narrow);
  return kept;
}

EncoderLayer::Scratch EncoderLayer::TakeScratch(Arena& arena, std::int64_t tokens,
                                                std::int64_t longest) const {
  const std::int64_t wide = std::max(qkv_.out, ffn_.out);
  Scratch scratch;
  scratch.attention = TakeFloats(arena, AttentionScratch(longest));
  scratch.drop = TakeFloats(arena, std::max(kDropScratch, 2 * config_.hidden));
  scratch.wide = TakeFloats(arena, tokens * wide);
  scratch.context = TakeFloats(arena, tokens * attention_out_.in);
  scratch.sum = TakeFloats(arena, tokens * config_.hidden);
  return scratch;
}

void EncoderLayer::Forward(const Params& params, const TokenBatch& batch, std::int64_t use,
                           const float* x, const Kept& kept, const Scratch& scratch) const {
  const std::int64_t tokens = batch.tokens(), narrow = tokens * config_.hidden;
  qkv_.Forward(params, tokens, x, kept.qkv);
  AttentionForward(Attention(params), AttentionOf(batch, use), kept.qkv, kept.context, kept.lse,
                   scratch.attention);
  attention_out_.Forward(params, tokens, kept.context, kept.sum1.x);
  DropTokens(batch, SiteOf(use, 1), config_.hidden_dropout, config_.hidden, kept.sum1.x,
             scratch.drop);
  AddInto(narrow, x, kept.sum1.x);
  norm1_.Forward(params, tokens, kept.sum1, kept.hidden);
  ffn_.Forward(params, tokens, kept.hidden, kept.z);
  Kernels().gelu(config_.gelu, tokens * ffn_.out, kept.z, kept.g);
  ffn_out_.Forward(params, tokens, kept.g, kept.sum2.x);
  if (config_.family == TransformerConfig::Family::kBert) {
    DropTokens(batch, SiteOf(use, 2), config_.hidden_dropout, config_.hidden, kept.sum2.x,
               scratch.drop);
  }
  AddInto(narrow, kept.hidden, kept.sum2.x);
  norm2_.Forward(params, tokens, kept.sum2, kept.out);
}

void EncoderLayer::Backward(const Params& params, const TokenBatch& batch, std::int64_t use,
                            const float* x, const Kept& kept, const Scratch& scratch,
                            float* dy) const {
  const std::int64_t tokens = batch.tokens(), narrow = tokens * config_.hidden;
  // dy is the gradient of the sum from here on; `sum`, of the summand that was dropped from.
  norm2_.Backward(params, tokens, kept.sum2, dy, dy, scratch.drop);
  std::copy_n(dy, narrow, scratch.sum);
  if (config_.family == TransformerConfig::Family::kBert) {
    DropTokens(batch, SiteOf(use, 2), config_.hidden_dropout, config_.hidden, scratch.sum,
               scratch.drop);
  }
  ffn_out_.Backward(params, tokens, kept.g, scratch.sum, 0, scratch.wide);
  Kernels().gelu_backward(config_.gelu, tokens * ffn_.out, kept.z, scratch.wide, scratch.wide);
  ffn_.Backward(params, tokens, kept.hidden, scratch.wide, 1, dy);
  norm1_.Backward(params, tokens, kept.sum1, dy, dy, scratch.drop);
  std::copy_n(dy, narrow, scratch.sum);
  DropTokens(batch, SiteOf(use, 1), config_.hidden_dropout, config_.hidden, scratch.sum,
             scratch.drop);
  attention_out_.Backward(params, tokens, kept.context, scratch.sum, 0, scratch.context);
  AttentionBackward(Attention(params), AttentionOf(batch, use), kept.qkv, kept.context, kept.lse,
                    scratch.context, scratch.wide, scratch.attention);
  qkv_.Backward(params, tokens, x, scratch.wide, 1, dy);
}

AttentionShape EncoderLayer::Attention(const Params& params) const {
  return {.heads = heads_.count,
          .width = config_.hidden / config_.heads,
          .first_head = heads_.first,
          .rate = config_.attention_dropout,
          .compute = params.compute};
}

AttentionBatch EncoderLayer::AttentionOf(const TokenBatch& batch, std::int64_t use) {
  return {batch.starts, batch.dropout, SiteOf(use, 0)};
}

}  // namespace troop
