// Implements one encoder layer with packed sequences, dropout, and optional tensor parallelism.
#include "nn/transformer/encoder_layer.h"

#include <algorithm>

#include "nn/transformer/family.h"

namespace troop {
namespace {

// Queries, keys and values of the rank's heads as one linear layer. Hidden is a multiple of 16, so
// the three weights are contiguous.
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

// The fastest kernels of this CPU, chosen once.
const TransformerKernels& Kernels() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

}  // namespace

EncoderLayer::EncoderLayer(const TransformerOptions& options, const std::string& prefix,
                           ParamLayout& layout)
    : config_(options.config), heads_(ShareOf(config_.heads, options.tensor)) {
  const TransformerConfig& config = config_;
  const LayerNames& names = FormOf(config.family).layer;
  // This rank's heads and intermediate units; norms are whole.
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

// Keys and values are kept for all tokens, everything after the attention only for the requested
// rows.
EncoderLayer::Kept EncoderLayer::TakeKept(Arena& arena, std::int64_t tokens,
                                          std::int64_t rows) const {
  // Order of use in Forward, so that a pass walks the memory upwards.
  const std::int64_t narrow = rows * config_.hidden, wide = rows * ffn_.out;
  Kept kept;
  kept.qkv = TakeFloats(arena, tokens * KeysAndValues().out + rows * Queries().out);
  kept.context = TakeFloats(arena, rows * attention_out_.in);
  kept.lse = TakeFloats(arena, rows * heads_.count);
  kept.sum1 = norm1_.TakeKept(arena, rows);
  kept.hidden = TakeFloats(arena, narrow);
  kept.z = TakeFloats(arena, wide);
  kept.g = TakeFloats(arena, wide);
  kept.sum2 = norm2_.TakeKept(arena, rows);
  kept.out = TakeFloats(arena, narrow);
  return kept;
}

// `wide` serves the gradients of qkv and of the feed-forward layer in turn.
EncoderLayer::Scratch EncoderLayer::TakeScratch(Arena& arena, std::int64_t tokens,
                                                std::int64_t longest) const {
  const std::int64_t wide = std::max(qkv_.out, ffn_.out);
  const std::int64_t norm = std::max(config_.hidden, config_.embedding);
  Scratch scratch;
  scratch.attention = TakeFloats(arena, AttentionScratch(longest));
  scratch.drop = TakeFloats(arena, std::max(kDropScratch, 2 * norm));
  scratch.wide = TakeFloats(arena, tokens * wide);
  scratch.context = TakeFloats(arena, tokens * std::max(attention_out_.in, config_.embedding));
  scratch.sum = TakeFloats(arena, tokens * config_.hidden);
  return scratch;
}

// Steps: 1. projections; 2. attention; 3. output projection, dropout, residual, norm; 4.
// feed-forward, dropout, residual, norm.
void EncoderLayer::Forward(const Use& application) const {
  const auto& [params, batch, use, asked, input, kept, scratch] = application;
  const float* x = input;
  const std::int64_t tokens = batch.tokens();
  const std::int64_t rows = asked ? std::int64_t(asked->size()) : tokens;
  if (asked) {
    const LinearPart keys_and_values = KeysAndValues();
    GatherRows(*asked, config_.hidden, x, false, kept.asked);
    keys_and_values.Forward(params, tokens, x, kept.qkv);
    Queries().Forward(params, rows, kept.asked, kept.qkv + tokens * keys_and_values.out);
    x = kept.asked;
  } else {
    qkv_.Forward(params, tokens, x, kept.qkv);
  }
  // 2. Attention over each sequence.
  AttentionForward({.shape = Attention(params),
                    .batch = AttentionOf(batch, use, asked),
                    .qkv = kept.qkv,
                    .out = kept.context,
                    .lse = kept.lse,
                    .scratch = scratch.attention});
  // 3. Output projection, dropout, residual, norm.
  attention_out_.Forward(params, rows, kept.context, kept.sum1.x);
  if (FormOf(config_.family).drops_attention)
    DropTokens(batch, asked, HiddenDropout(application, 1, kept.sum1.x));
  AddInto(rows * config_.hidden, x, kept.sum1.x);
  norm1_.Forward(params, rows, kept.sum1, kept.hidden);
  // 4. Feed-forward, dropout, residual, norm.
  ffn_.Forward(params, rows, kept.hidden, kept.z);
  Kernels().gelu(config_.gelu, rows * ffn_.out, kept.z, kept.g);
  ffn_out_.Forward(params, rows, kept.g, kept.sum2.x);
  if (FormOf(config_.family).drops_ffn)
    DropTokens(batch, asked, HiddenDropout(application, 2, kept.sum2.x));
  AddInto(rows * config_.hidden, kept.hidden, kept.sum2.x);
  norm2_.Forward(params, rows, kept.sum2, kept.out);
}

// Mirrors Forward. After each norm, the residual's gradient stays in dy and the branch's is
// computed in scratch.
void EncoderLayer::Backward(const Use& application, float* dy, float* dx) const {
  const auto& [params, batch, use, asked, x, kept, scratch] = application;
  const std::int64_t tokens = batch.tokens();
  const std::int64_t rows = asked ? std::int64_t(asked->size()) : tokens;
  const std::int64_t narrow = rows * config_.hidden;
  // From here on dy is the gradient of the residual sum, `sum` that of the branch with dropout.
  norm2_.Backward(params, kept.sum2, {.rows = rows, .dy = dy, .dx = dy, .scratch = scratch.drop});
  std::copy_n(dy, narrow, scratch.sum);
  if (FormOf(config_.family).drops_ffn)
    DropTokens(batch, asked, HiddenDropout(application, 2, scratch.sum));
  // 1. Feed-forward: its input gradient adds to the residual's.
  ffn_out_.Backward(params, {.rows = rows, .x = kept.g, .dy = scratch.sum, .dx = scratch.wide});
  Kernels().gelu_backward(config_.gelu, rows * ffn_.out, kept.z, scratch.wide, scratch.wide);
  ffn_.Backward(params, {.rows = rows, .x = kept.hidden, .dy = scratch.wide, .beta = 1, .dx = dy});
  // 2. Attention branch.
  norm1_.Backward(params, kept.sum1, {.rows = rows, .dy = dy, .dx = dy, .scratch = scratch.drop});
  std::copy_n(dy, narrow, scratch.sum);
  if (FormOf(config_.family).drops_attention)
    DropTokens(batch, asked, HiddenDropout(application, 1, scratch.sum));
  attention_out_.Backward(
      params, {.rows = rows, .x = kept.context, .dy = scratch.sum, .dx = scratch.context});
  AttentionBackward({.shape = Attention(params),
                     .batch = AttentionOf(batch, use, asked),
                     .qkv = kept.qkv,
                     .out = kept.context,
                     .lse = kept.lse,
                     .dout = scratch.context,
                     .dqkv = scratch.wide,
                     .scratch = scratch.attention});
  // 3. Projections.
  if (asked) return BackwardAsked(application, scratch.wide, dy, dx);
  TROOP_CHECK(dx == dy, "the gradient of all tokens is computed in place");
  qkv_.Backward(params, {.rows = tokens, .x = x, .dy = scratch.wide, .beta = 1, .dx = dx});
}

// dx = dqkv · w, plus dy for the requested tokens: the residual connection around the attention.
void EncoderLayer::BackwardAsked(const Use& use, const float* dqkv, float* dy, float* dx) const {
  const Params& params = use.params;
  const std::span<const std::int32_t> asked = *use.asked;
  const std::int64_t tokens = use.batch.tokens();
  const LinearPart queries = Queries(), keys_and_values = KeysAndValues();
  const auto rows = std::int64_t(asked.size());
  // dqkv: keys and values of all tokens, then the requested queries.
  const float* const dq = dqkv + tokens * keys_and_values.out;
  // Queries exist only for the requested tokens, keys and values for all.
  queries.AddGradient(params, rows, use.kept.asked, dq);
  keys_and_values.AddGradient(params, tokens, use.x, dqkv);
  // dy is equal on all ranks, so only one adds it to their sum.
  const float keep = queries.cut_out && !params.first_rank() ? 0 : 1;
  params.MatMul({.m = rows, .n = queries.in, .k = queries.out}, dq, params.value + queries.weight,
                keep, dy);
  params.MatMul({.m = tokens, .n = queries.in, .k = keys_and_values.out}, dqkv,
                params.value + keys_and_values.weight, 0, dx);
  // The requested rows get their residual gradient; the sum over the ranks follows.
  ScatterAddRows(asked, config_.hidden, dy, dx);
  if (queries.cut_out) params.Sum(tokens * config_.hidden, dx);
}

// The first third of qkv_.
LinearPart EncoderLayer::Queries() const {
  LinearPart part = qkv_;
  part.out = qkv_.out / 3;
  part.biases = 1;
  return part;
}

// The other two thirds of qkv_; biases are aligned separately.
LinearPart EncoderLayer::KeysAndValues() const {
  LinearPart part = qkv_;
  const std::int64_t n = qkv_.out / 3;
  part.out = 2 * n;
  part.biases = 2;
  part.weight += n * qkv_.in;
  part.bias += AlignParams(n);
  return part;
}

// first_head keeps the dropout masks of a rank's heads equal to those of the whole model.
AttentionShape EncoderLayer::Attention(const Params& params) const {
  return {.heads = heads_.count,
          .width = config_.hidden / config_.heads,
          .first_head = heads_.first,
          .rate = config_.attention_dropout,
          .compute = params.compute};
}

DropRowsArgs EncoderLayer::HiddenDropout(const Use& use, std::uint32_t which, float* x) const {
  return {.site = SiteOf(use.number, which),
          .rate = config_.hidden_dropout,
          .width = config_.hidden,
          .x = x,
          .scratch = use.scratch.drop};
}

AttentionBatch EncoderLayer::AttentionOf(const TokenBatch& batch, std::int64_t use,
                                         const AskedTokens& asked) {
  return {batch.starts, batch.dropout, SiteOf(use, 0), asked};
}

}  // namespace troop
