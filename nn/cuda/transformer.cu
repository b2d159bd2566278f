// Implements the passes of a transformer on a GPU.
#include "nn/cuda/transformer.h"

#include <algorithm>

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "kernels/cuda/ops/linear.h"
#include "kernels/cuda/ops/optimizer_step.h"

namespace troop::cuda {
namespace {

constexpr std::uint32_t kEmbeddingSite = 0, kClassifierSite = 1u << 31;
constexpr std::uint32_t kPoolerSite = kClassifierSite + 1;
std::uint32_t SiteOf(std::int64_t use, std::uint32_t which) {  // as nn/transformer/encoder_layer.h
  return std::uint32_t(1 + 3 * use) + which;
}

}  // namespace

// Limits of the attention kernels, and alignment of the ranks' shares.
std::string Transformer::CheckForm(const TransformerSpec& spec, Precision precision) {
  const std::int64_t width = spec.width();
  if (precision == Precision::kBF16 && width != kTensorCoreWidth) {
    return "heads of " + std::to_string(width) +
           " elements; on a GPU, attention in bf16 needs heads of 64";
  }
  if (width > kAttentionWidthMax)
    return "heads of " + std::to_string(width) + " elements; on a GPU they may have at most 256";
  for (int rank = 0; spec.cut() && rank < spec.place.ranks; ++rank) {
    const std::int64_t heads = ShareOf(spec.heads, {rank, spec.place.ranks}).count;
    if (heads * width % kParameterBlock == 0) continue;
    return "a tensor-parallel rank with " + std::to_string(heads) + " heads of " +
           std::to_string(width) + " elements; on a GPU the total must be a multiple of 16";
  }
  return {};
}

Transformer::Transformer(Device& device, MatMulPlans& plans, const TransformerSpec& spec,
                         Precision precision)
    : plans_(plans),
      spec_(spec),
      precision_(precision),
      element_(ElementType(precision)),
      memory_(device, spec_, precision) {}

std::int64_t Transformer::stride() const {
  return spec_.masked() ? (outputs() + 7) / 8 * 8 : spec_.classes;
}
DType Transformer::output_dtype() const { return spec_.masked() ? element_ : DType::kF32; }

const void* Transformer::Weight(const TransformerWeights& weights, std::int64_t at) const {
  if (precision_ == Precision::kBF16) return weights.bf16 + at;
  return weights.value + at;
}
const void* Transformer::Bias(const TransformerWeights& weights, std::int64_t at,
                              DType dtype) const {
  if (dtype == DType::kBF16) return weights.bf16 + at;
  return weights.value + at;
}
Dropout Transformer::DropoutAt(const DeviceTokens& batch, std::uint32_t site, float rate) const {
  return {batch.dropout, site, rate};
}
// heads.first keeps the dropout masks equal to those of the whole model.
AttentionForm Transformer::FormOf(const DeviceTokens& batch, std::int64_t use) const {
  const Share heads = spec_.head_share();
  return {heads.count,
          spec_.width(),
          heads.first,
          element_,
          DropoutAt(batch, SiteOf(use, 0), spec_.attention_dropout),
          memory_.AttentionOf(use).scores.data()};
}

// y [rows, out] = x · wᵀ + b. If y is a sum over the ranks, only the first rank adds b.
void Transformer::Linear(const Step& step, const LinearArgs& args) {
  const TransformerSpec::Linear& linear = args.linear;
  const bool sums = linear.cut == TransformerSpec::Linear::Cut::kIn;
  const bool biased = !sums || spec_.place.rank == 0;
  MatMul(step.stream, plans_,
         {.shape = {.m = args.rows, .n = linear.out, .k = linear.in, .transpose_b = true},
          .precision = precision_,
          .a = args.x,
          .b = Weight(step.weights, linear.weight),
          .c = args.y,
          .c_dtype = args.y_dtype,
          .epilogue = biased ? Epilogue::kBias : Epilogue::kNone,
          .bias = biased ? Bias(step.weights, linear.bias, args.y_dtype) : nullptr});
  if (sums) SumOverParts(step, args.y, args.rows * linear.out);
}

// Accumulates a bias gradient.
void Transformer::AddRows(const Step& step, std::int64_t at, SumRowsArgs args) {
  args.dtype = element_;
  args.sum = step.gradient + at;
  args.add = true;
  args.workspace = memory_.sum_workspace.data();
  SumRows(step.stream, args);
}

// dx = dz · w + beta dx. If dz is a rank's share, dx is the sum over the ranks, and only the first
// rank adds beta dx.
void Transformer::LinearBackward(const Step& step, const LinearBackwardArgs& args) {
  const TransformerSpec::Linear& linear = args.linear;
  const std::int64_t rows = args.rows;
  MatMul(step.stream, plans_,
         {.shape = {.m = linear.out, .n = linear.in, .k = rows, .transpose_a = true},
          .precision = precision_,
          .a = args.dz,
          .b = args.x,
          .c = step.gradient + linear.weight,
          .beta = 1});
  AddRows(step, linear.bias, {.rows = rows, .n = linear.out, .x = args.dz});
  if (args.dx == nullptr) return;
  const bool sums = linear.cut == TransformerSpec::Linear::Cut::kOut;
  MatMul(step.stream, plans_,
         {.shape = {.m = rows, .n = linear.in, .k = linear.out},
          .precision = precision_,
          .a = args.dz,
          .b = Weight(step.weights, linear.weight),
          .c = args.dx,
          .c_dtype = element_,
          .beta = sums && spec_.place.rank > 0 ? 0 : args.beta});
  if (sums) SumOverParts(step, args.dx, rows * linear.in);
}

// Layer norm with the statistics kept.
void Transformer::Norm(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
                       const TransformerMemory::KeptNorm& kept, void* y) {
  LayerNorm(step.stream, {.shape = {rows, norm.n, spec_.epsilon},
                          .dtype = element_,
                          .x = kept.x.data(),
                          .gamma = step.weights.value + norm.gamma,
                          .beta = step.weights.value + norm.beta,
                          .y = y,
                          .mean = kept.mean.data(),
                          .rstd = kept.rstd.data()});
}
// Its gradients accumulate in f32.
void Transformer::NormBackward(const Step& step, const TransformerSpec::Norm& norm,
                               std::int64_t rows, const TransformerMemory::KeptNorm& kept,
                               void* dy) {
  LayerNormBackward(step.stream, {.shape = {rows, norm.n, spec_.epsilon},
                                  .dtype = element_,
                                  .x = kept.x.data(),
                                  .gamma = step.weights.value + norm.gamma,
                                  .mean = kept.mean.data(),
                                  .rstd = kept.rstd.data(),
                                  .dy = dy,
                                  .dx = dy,
                                  .dgamma = step.gradient + norm.gamma,
                                  .dbeta = step.gradient + norm.beta,
                                  .workspace = memory_.norm_workspace.data()});
}

// Embeddings, summed over the ranks, then the layers and the head.
void Transformer::Forward(Stream& stream, const TransformerPass& pass, bool keep, void* out) {
  const DeviceTokens& batch = pass.batch;
  const std::int64_t tokens = batch.sequences.tokens;
  // Peers must finish first, because the host waits for the device before it grows.
  if (memory_.Grows(tokens, batch.rows, keep) && peers_ != nullptr) peers_->Settle();
  memory_.Reserve(tokens, batch.rows, keep);
  const Step step{stream, pass.weights, batch};
  const float* const value = pass.weights.value;
  const Share words = spec_.word_share();
  // Tokens of other ranks give 0; positions and types are added by rank 0 only.
  EmbedTokens(stream,
              {.batch = batch.sequences,
               .width = spec_.embedding,
               .id = batch.id,
               .type = batch.type,
               .place = batch.place,
               .tables = {.word = value + spec_.word_table,
                          .position = value + spec_.position_table,
                          .type = spec_.token_types > 0 ? value + spec_.type_table : nullptr,
                          .first_word = std::int32_t(words.first),
                          .words = std::int32_t(words.count),
                          .places = spec_.place.rank == 0},
               .dtype = element_,
               .out = memory_.embedding_sum.x.data()});
  // The sum over the ranks completes the embeddings.
  SumOverParts(step, memory_.embedding_sum.x.data(), step.tokens() * spec_.embedding);
  Norm(step, spec_.embedding_norm, step.tokens(), memory_.embedding_sum, memory_.embedded.data());
  const Dropout dropout = DropoutAt(batch, kEmbeddingSite, spec_.hidden_dropout);
  DropAdd(stream, {.batch = batch.sequences,
                   .dropout = dropout,
                   .width = spec_.embedding,
                   .dtype = element_,
                   .x = memory_.embedded.data(),
                   .y = memory_.embedded.data()});
  if (spec_.has_map) {
    Linear(step, {.linear = spec_.map,
                  .rows = step.tokens(),
                  .x = memory_.embedded.data(),
                  .y = memory_.mapped.data(),
                  .y_dtype = element_});
  }
  for (std::int64_t use = 0; use < spec_.layers; ++use) ForwardLayer(step, use, memory_.InOf(use));
  ForwardHead(step, memory_.last.out.data(), out);
}

// y = dropout(x) + add, for all tokens or, in the last layer, for the requested rows.
void Transformer::DropAddOf(const Step& step, const DropAddOfArgs& args) {
  const DeviceTokens& batch = step.batch;
  const bool drops = args.which == 1 ? spec_.drops_attention : spec_.drops_ffn;
  const Dropout dropout =
      DropoutAt(batch, SiteOf(args.use, args.which), drops ? spec_.hidden_dropout : 0);
  if (memory_.IsLast(args.use)) {
    DropAddRows(step.stream, {.batch = batch.sequences,
                              .dropout = dropout,
                              .rows = batch.rows,
                              .token = batch.chosen,
                              .width = spec_.hidden,
                              .dtype = element_,
                              .x = args.x,
                              .add = args.add,
                              .y = args.y});
  } else {
    DropAdd(step.stream, {.batch = batch.sequences,
                          .dropout = dropout,
                          .width = spec_.hidden,
                          .dtype = element_,
                          .x = args.x,
                          .add = args.add,
                          .y = args.y});
  }
}

// Like EncoderLayer::Forward. The last layer continues with only the requested rows after the
// attention.
void Transformer::ForwardLayer(const Step& step, std::int64_t use, const void* x) {
  const TransformerSpec::Layer& layer = LayerOf(use);
  const DeviceTokens& batch = step.batch;
  const TransformerMemory::KeptAttention& attention = memory_.AttentionOf(use);
  const TransformerMemory::KeptRows& kept = memory_.RowsOf(use);
  // 1. Projections and attention for all tokens.
  Linear(step, {.linear = layer.qkv,
                .rows = step.tokens(),
                .x = x,
                .y = attention.qkv.data(),
                .y_dtype = element_});
  AttentionForward(step.stream, {.batch = batch.sequences,
                                 .form = FormOf(batch, use),
                                 .qkv = attention.qkv.data(),
                                 .out = attention.context.data(),
                                 .lse = attention.lse.data()});
  std::int64_t rows = step.tokens();
  const void* context = attention.context.data();
  if (memory_.IsLast(use)) {
    rows = batch.rows;
    GatherRows(step.stream, {.rows = rows,
                             .width = spec_.hidden,
                             .row = batch.chosen,
                             .dtype = element_,
                             .from = x,
                             .to = memory_.asked_x.data()});
    GatherRows(step.stream, {.rows = rows,
                             .width = spec_.heads_wide(),
                             .row = batch.chosen,
                             .dtype = element_,
                             .from = context,
                             .to = memory_.asked_context.data()});
    x = memory_.asked_x.data();
    context = memory_.asked_context.data();
  }
  // 2. Output projection, dropout, residual, norm.
  Linear(step, {.linear = layer.attention_out,
                .rows = rows,
                .x = context,
                .y = kept.sum1.x.data(),
                .y_dtype = element_});
  DropAddOf(step,
            {.use = use, .which = 1, .x = kept.sum1.x.data(), .add = x, .y = kept.sum1.x.data()});
  Norm(step, layer.norm1, rows, kept.sum1, kept.hidden.data());
  // 3. Feed-forward, dropout, residual, norm.
  Linear(step, {.linear = layer.ffn,
                .rows = rows,
                .x = kept.hidden.data(),
                .y = kept.z.data(),
                .y_dtype = element_});
  Gelu(step.stream, {.form = spec_.gelu,
                     .dtype = element_,
                     .n = rows * layer.ffn.out,
                     .z = kept.z.data(),
                     .y = kept.g.data()});
  Linear(step, {.linear = layer.ffn_out,
                .rows = rows,
                .x = kept.g.data(),
                .y = kept.sum2.x.data(),
                .y_dtype = element_});
  DropAddOf(step, {.use = use,
                   .which = 2,
                   .x = kept.sum2.x.data(),
                   .add = kept.hidden.data(),
                   .y = kept.sum2.x.data()});
  Norm(step, layer.norm2, rows, kept.sum2, memory_.OutOf(use));
}

// Masked-LM: transform and tied decoder. Otherwise: the classifier.
void Transformer::ForwardHead(const Step& step, const void* x, void* out) {
  const std::int64_t rows = step.batch.rows;
  if (!spec_.masked()) return ForwardClassifier(step, x, out);
  Linear(step, {.linear = spec_.first,
                .rows = rows,
                .x = x,
                .y = memory_.head_mid.data(),
                .y_dtype = element_});
  Gelu(step.stream, {.form = spec_.word_gelu,
                     .dtype = element_,
                     .n = rows * spec_.embedding,
                     .z = memory_.head_mid.data(),
                     .y = memory_.head_sum.x.data()});
  Norm(step, spec_.head_norm, rows, memory_.head_sum, memory_.head_top.data());
  MatMul(
      step.stream, plans_,
      {.shape =
           {.m = rows, .n = outputs(), .k = spec_.embedding, .transpose_b = true, .ldc = stride()},
       .precision = precision_,
       .a = memory_.head_top.data(),
       .b = Weight(step.weights, spec_.word_table),
       .c = out,
       .c_dtype = element_,
       .epilogue = Epilogue::kBias,
       .bias = Bias(step.weights, spec_.word_bias, element_)});
}

// y = dropout(x) of rows of the head, [rows, hidden].
void Transformer::DropHead(const Step& step, std::uint32_t site, const void* x, void* y) {
  DropAdd(step.stream, {.batch = EachRow(step.batch.rows),
                        .dropout = DropoutAt(step.batch, site, spec_.classifier_dropout),
                        .width = spec_.hidden,
                        .dtype = element_,
                        .x = x,
                        .y = y});
}

// Pooler, dropout, classifier. Some families drop the input of the pooler, too.
void Transformer::ForwardClassifier(const Step& step, const void* x, void* out) {
  const std::int64_t rows = step.batch.rows;
  using Pooler = TransformerSpec::Pooler;
  if (spec_.drops_first) {
    DropHead(step, kPoolerSite, x, memory_.head_in.data());
    x = memory_.head_in.data();
  }
  // tanh and ReLU are fused; GELU keeps its input for backward, and is exact in every family.
  const bool gelu = spec_.pooler == Pooler::kGelu;
  LinearForward(step.stream, plans_,
                {.precision = precision_,
                 .shape = {spec_.first.in, spec_.first.out},
                 .activation = gelu                            ? Activation::kNone
                               : spec_.pooler == Pooler::kTanh ? Activation::kTanh
                                                               : Activation::kRelu,
                 .batch = rows,
                 .x = x,
                 .weight = Weight(step.weights, spec_.first.weight),
                 .bias = Bias(step.weights, spec_.first.bias, element_),
                 .y = memory_.head_mid.data(),
                 .y_dtype = element_});
  if (gelu) {
    Gelu(step.stream, {.form = GeluForm::kErf,
                       .dtype = element_,
                       .n = rows * spec_.hidden,
                       .z = memory_.head_mid.data(),
                       .y = memory_.head_top.data()});
  }
  DropHead(step, kClassifierSite, (gelu ? memory_.head_top : memory_.head_mid).data(),
           memory_.head_top.data());
  Linear(step, {.linear = spec_.classifier,
                .rows = rows,
                .x = memory_.head_top.data(),
                .y = out,
                .y_dtype = DType::kF32});
}

// Reports ranges in the stream's order; a shared layer is complete after its first use.
void Transformer::Backward(Stream& stream, const TransformerPass& pass, const void* dout,
                           float* gradient, const Ready& ready) {
  const Step step{stream, pass.weights, pass.batch, gradient};
  BackwardHead(step, dout);
  if (ready) ready(spec_.head_begin);
  for (std::int64_t use = spec_.layers; use-- > 0;) {
    // The last layer's activations are still in memory.
    if (memory_.recomputes() && !memory_.IsLast(use)) ForwardLayer(step, use, memory_.InOf(use));
    BackwardLayer(step, use, memory_.InOf(use));
    if (ready && (!spec_.shared || use == 0)) ready(LayerOf(use).begin);
  }
  BackwardEmbedding(step);
  if (ready) ready(0);
}

// Computes the gradient of the last layer's output, [rows, hidden], into memory_.dhead[1].
void Transformer::BackwardHead(const Step& step, const void* dout) {
  std::byte* const dmid = memory_.dhead[0].data();
  if (spec_.masked()) {
    BackwardWords(step, dout, dmid);
  } else {
    BackwardClassifier(step, dout, dmid);
  }
  const bool drops = !spec_.masked() && spec_.drops_first;
  LinearBackward(step, {.linear = spec_.first,
                        .rows = step.batch.rows,
                        .x = (drops ? memory_.head_in : memory_.last.out).data(),
                        .dz = dmid,
                        .dx = memory_.dhead[1].data()});
  if (drops) DropHead(step, kPoolerSite, memory_.dhead[1].data(), memory_.dhead[1].data());
}

// From the vocabulary's logits to the transform's output.
void Transformer::BackwardWords(const Step& step, const void* dout, void* dmid) {
  const std::int64_t rows = step.batch.rows, words = outputs(), embedding = spec_.embedding;
  MatMul(step.stream, plans_,  // the decoder is tied to the embeddings
         {.shape = {.m = words, .n = embedding, .k = rows, .transpose_a = true, .lda = stride()},
          .precision = precision_,
          .a = dout,
          .b = memory_.head_top.data(),
          .c = step.gradient + spec_.word_table,
          .beta = 1});
  // The decoder's bias.
  AddRows(step, spec_.word_bias, {.rows = rows, .n = words, .stride = stride(), .x = dout});
  MatMul(step.stream, plans_,
         {.shape = {.m = rows, .n = embedding, .k = words, .lda = stride()},
          .precision = precision_,
          .a = dout,
          .b = Weight(step.weights, spec_.word_table),
          .c = dmid,
          .c_dtype = element_});
  SumOverParts(step, dmid, rows * embedding);
  NormBackward(step, spec_.head_norm, rows, memory_.head_sum, dmid);
  GeluBackward(step.stream, {.form = spec_.word_gelu,
                             .dtype = element_,
                             .n = rows * embedding,
                             .z = memory_.head_mid.data(),
                             .dy = dmid,
                             .dz = dmid});
}

// From the classifier's logits to the pooler's output before its activation.
void Transformer::BackwardClassifier(const Step& step, const void* dout, void* dmid) {
  const std::int64_t rows = step.batch.rows, n = rows * spec_.hidden;
  using Pooler = TransformerSpec::Pooler;
  // The loss gives f32 gradients of logits.
  ConvertScaled(
      step.stream,
      {.n = rows * spec_.classes, .from = dout, .to = memory_.dout.data(), .to_dtype = element_});
  LinearBackward(step, {.linear = spec_.classifier,
                        .rows = rows,
                        .x = memory_.head_top.data(),
                        .dz = memory_.dout.data(),
                        .dx = dmid});
  DropHead(step, kClassifierSite, dmid, dmid);
  if (spec_.pooler == Pooler::kGelu) {
    return GeluBackward(step.stream, {.form = GeluForm::kErf,
                                      .dtype = element_,
                                      .n = n,
                                      .z = memory_.head_mid.data(),
                                      .dy = dmid,
                                      .dz = dmid});
  }
  const bool tanh = spec_.pooler == Pooler::kTanh;
  ActivationBackward(step.stream, {.activation = tanh ? Activation::kTanh : Activation::kRelu,
                                   .dtype = element_,
                                   .n = n,
                                   .y = memory_.head_mid.data(),
                                   .dy = dmid,
                                   .dz = dmid});
}

// to [T, width] = the requested rows at their tokens, and 0 elsewhere.
void Transformer::Spread(const Step& step, const void* rows, std::int64_t width, void* to) {
  step.stream.Fill(to, 0, std::size_t(step.tokens() * width * ElementBytes(element_)));
  ScatterRows(step.stream, {.rows = step.batch.scattered,
                            .width = width,
                            .row = step.batch.chosen,
                            .dtype = element_,
                            .from = rows,
                            .to = to});
}

// Turns memory_.dy [T, hidden] (in the last layer memory_.dhead[1]) into the gradient of x, in
// memory_.dy. After each norm, memory_.dy is the gradient of the residual sum and memory_.dsum that
// of the branch with dropout.
void Transformer::BackwardLayer(const Step& step, std::int64_t use, const void* x) {
  const TransformerSpec::Layer& layer = LayerOf(use);
  const DeviceTokens& batch = step.batch;
  const TransformerMemory::KeptAttention& attention = memory_.AttentionOf(use);
  const TransformerMemory::KeptRows& kept = memory_.RowsOf(use);
  const bool last = memory_.IsLast(use);
  const std::int64_t rows = last ? batch.rows : step.tokens();
  std::byte* const dy = (last ? memory_.dhead[1] : memory_.dy).data();
  // 1. Feed-forward branch.
  NormBackward(step, layer.norm2, rows, kept.sum2, dy);
  DropAddOf(step, {.use = use, .which = 2, .x = dy, .y = memory_.dsum.data()});
  LinearBackward(step, {.linear = layer.ffn_out,
                        .rows = rows,
                        .x = kept.g.data(),
                        .dz = memory_.dsum.data(),
                        .dx = memory_.dwide.data()});
  GeluBackward(step.stream, {.form = spec_.gelu,
                             .dtype = element_,
                             .n = rows * layer.ffn.out,
                             .z = kept.z.data(),
                             .dy = memory_.dwide.data(),
                             .dz = memory_.dwide.data()});
  LinearBackward(step, {.linear = layer.ffn,
                        .rows = rows,
                        .x = kept.hidden.data(),
                        .dz = memory_.dwide.data(),
                        .beta = 1,
                        .dx = dy});
  // 2. Attention branch; the last layer spreads its rows over all tokens.
  NormBackward(step, layer.norm1, rows, kept.sum1, dy);
  DropAddOf(step, {.use = use, .which = 1, .x = dy, .y = memory_.dsum.data()});
  if (last) {
    LinearBackward(step, {.linear = layer.attention_out,
                          .rows = rows,
                          .x = memory_.asked_context.data(),
                          .dz = memory_.dsum.data(),
                          .dx = memory_.dhead[0].data()});
    Spread(step, memory_.dhead[0].data(), spec_.heads_wide(), memory_.dcontext.data());
    Spread(step, dy, spec_.hidden, memory_.dy.data());
  } else {
    LinearBackward(step, {.linear = layer.attention_out,
                          .rows = rows,
                          .x = attention.context.data(),
                          .dz = memory_.dsum.data(),
                          .dx = memory_.dcontext.data()});
  }
  // 3. Attention, and the residual gradient in memory_.dy.
  AttentionBackward(step.stream, {.batch = batch.sequences,
                                  .form = FormOf(batch, use),
                                  .qkv = attention.qkv.data(),
                                  .out = attention.context.data(),
                                  .lse = attention.lse.data(),
                                  .dout = memory_.dcontext.data(),
                                  .dqkv = memory_.dwide.data(),
                                  .delta = memory_.delta.data()});
  LinearBackward(step, {.linear = layer.qkv,
                        .rows = step.tokens(),
                        .x = x,
                        .dz = memory_.dwide.data(),
                        .beta = 1,
                        .dx = memory_.dy.data()});
}

// Through the map, dropout and norm into the tables.
void Transformer::BackwardEmbedding(const Step& step) {
  std::byte* dsum = memory_.dy.data();
  if (spec_.has_map) {
    LinearBackward(step, {.linear = spec_.map,
                          .rows = step.tokens(),
                          .x = memory_.embedded.data(),
                          .dz = memory_.dy.data(),
                          .dx = memory_.dsum.data()});
    dsum = memory_.dsum.data();
  }
  const DeviceTokens& batch = step.batch;
  DropAdd(step.stream, {.batch = batch.sequences,
                        .dropout = DropoutAt(batch, kEmbeddingSite, spec_.hidden_dropout),
                        .width = spec_.embedding,
                        .dtype = element_,
                        .x = dsum,
                        .y = dsum});
  NormBackward(step, spec_.embedding_norm, step.tokens(), memory_.embedding_sum, dsum);
  EmbedTokensBackward(
      step.stream,
      {.batch = batch.sequences,
       .width = spec_.embedding,
       .words = batch.words,
       .places = batch.places,
       .type = batch.type,
       .types = batch.types,
       .dtype = element_,
       .dout = dsum,
       .gradient = {.word = step.gradient + spec_.word_table,
                    .position = step.gradient + spec_.position_table,
                    .type = spec_.token_types > 0 ? step.gradient + spec_.type_table : nullptr},
       .workspace = memory_.sum_workspace.data()});
}

}  // namespace troop::cuda
