// Implements the transformer on a GPU: parameter layout, memory of a step, and both passes.
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
std::uint32_t SiteOf(std::int64_t use, std::uint32_t which) {  // as nn/transformer/encoder_layer.h
  return std::uint32_t(1 + 3 * use) + which;
}

// Assigns offsets in the order of nn/transformer/transformer_parts.h, and records the flags per
// block.
class Layout {
 public:
  explicit Layout(TransformerSpec* spec) : spec_(spec) {}
  // Adds n parameters; `cut`: each rank has different ones.
  std::int64_t Add(std::int64_t n, bool decays, bool cut) {
    const std::int64_t at = end_, blocks = (n + kParameterBlock - 1) / kParameterBlock;
    spec_->spared.insert(spec_->spared.end(), std::size_t(blocks), decays ? 0 : 1);
    spec_->whole.insert(spec_->whole.end(), std::size_t(blocks), cut ? 0 : 1);
    end_ += blocks * kParameterBlock;
    return at;
  }
  using Cut = TransformerSpec::Linear::Cut;
  void Linear(std::int64_t in, std::int64_t out, TransformerSpec::Linear* linear,
              Cut cut = Cut::kNone) {
    if (!spec_->cut()) cut = Cut::kNone;
    *linear = {.in = in,
               .out = out,
               .weight = Add(in * out, true, cut != Cut::kNone),
               .bias = Add(out, false, cut == Cut::kOut),
               .cut = cut};
  }
  void Norm(std::int64_t n, TransformerSpec::Norm* norm) {
    *norm = {.n = n, .gamma = Add(n, false, false), .beta = Add(n, false, false)};
  }
  std::int64_t end() const { return end_; }

 private:
  TransformerSpec* const spec_;
  std::int64_t end_ = 0;
};

}  // namespace

// Same order and padding as the CPU's ParamLayout: embeddings, layers, head.
void LayOut(TransformerSpec* spec) {
  spec->spared.clear();
  spec->whole.clear();
  spec->layer.clear();
  Layout layout(spec);
  using Cut = TransformerSpec::Linear::Cut;
  const std::int64_t hidden = spec->hidden, embedding = spec->embedding;
  const std::int64_t words = spec->word_share().count, wide = spec->wide_share().count;
  spec->word_table = layout.Add(words * embedding, true, spec->cut());
  spec->position_table = layout.Add(spec->positions * embedding, true, false);
  spec->type_table = layout.Add(spec->token_types * embedding, true, false);
  layout.Norm(embedding, &spec->embedding_norm);
  if (spec->albert) layout.Linear(embedding, hidden, &spec->map);
  for (std::int64_t i = 0; i < (spec->albert ? 1 : spec->layers); ++i) {
    TransformerSpec::Layer layer;
    layer.begin = layout.end();
    // A multiple of 16 (CheckForm), so queries, keys and values are contiguous.
    layout.Linear(hidden, 3 * spec->heads_wide(), &layer.qkv, Cut::kOut);
    layout.Linear(spec->heads_wide(), hidden, &layer.attention_out, Cut::kIn);
    layout.Norm(hidden, &layer.norm1);
    layout.Linear(hidden, wide, &layer.ffn, Cut::kOut);
    layout.Linear(wide, hidden, &layer.ffn_out, Cut::kIn);
    layout.Norm(hidden, &layer.norm2);
    spec->layer.push_back(layer);
  }
  spec->head_begin = layout.end();
  layout.Linear(hidden, spec->masked() ? embedding : hidden, &spec->first);
  if (spec->masked()) {
    layout.Norm(embedding, &spec->head_norm);
    spec->word_bias = layout.Add(words, false, spec->cut());
  } else {
    layout.Linear(hidden, spec->classes, &spec->classifier);
  }
  spec->parameters = layout.end();
}

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
    : device_(device),
      plans_(plans),
      spec_(spec),
      precision_(precision),
      element_(ElementType(precision)) {
  const std::int64_t widest = std::max(spec.hidden, spec.embedding);
  norm_workspace_ = Floats(device, LayerNormWorkspace(widest), "partial sums of norms' gradients");
}

namespace {

// True if attention dropout is stored as a mask: bf16 only.
bool DrawsScores(const TransformerSpec& spec, Precision precision) {
  return precision == Precision::kBF16 && spec.attention_dropout > 0;
}
// Upper bound for any division of the tokens into sequences.
std::int64_t ScoresWords(const TransformerSpec& spec, std::int64_t tokens) {
  return KeptScoresWords(tokens, tokens, spec.positions, spec.head_share().count);
}

}  // namespace

std::int64_t Transformer::stride() const {
  return spec_.masked() ? (outputs() + 7) / 8 * 8 : spec_.classes;
}
DType Transformer::output_dtype() const { return spec_.masked() ? element_ : DType::kF32; }

Transformer::Bytes Transformer::Elements(std::int64_t n, const char* what) {
  return Bytes(device_, n * ElementBytes(element_), what);
}
// Input, mean and 1 / deviation of a layer norm.
Transformer::KeptNorm Transformer::MakeKeptNorm(std::int64_t rows, std::int64_t n) {
  return {Elements(rows * n, "activations"), Floats(device_, rows, "rows' means"),
          Floats(device_, rows, "rows' deviations")};
}
// The dropout mask is stored only for training in bf16.
Transformer::KeptAttention Transformer::MakeKeptAttention(std::int64_t tokens) {
  const char* const what = "activations";
  const std::int64_t heads = tokens * spec_.heads_wide();
  KeptAttention kept = {Elements(3 * heads, what),
                        Elements(heads, what),
                        Floats(device_, tokens * spec_.head_share().count, "softmaxes' sums"),
                        {}};
  if (trains_ && DrawsScores(spec_, precision_)) {
    kept.scores =
        DeviceArray<std::uint32_t>(device_, ScoresWords(spec_, tokens), "which scores are kept");
  }
  return kept;
}
// Activations after the attention.
Transformer::KeptRows Transformer::MakeKeptRows(std::int64_t rows) {
  const char* const what = "activations";
  const std::int64_t narrow = rows * spec_.hidden, wide = rows * spec_.wide_share().count;
  KeptRows kept;
  kept.hidden = Elements(narrow, what);
  kept.z = Elements(wide, what);
  kept.g = Elements(wide, what);
  kept.out = Elements(narrow, what);
  kept.sum1 = MakeKeptNorm(rows, spec_.hidden);
  kept.sum2 = MakeKeptNorm(rows, spec_.hidden);
  return kept;
}

// Grows the memory for a batch, by 1/8 more than needed so that slightly larger batches do not
// reallocate. Waits for the device before freeing memory in use.
void Transformer::Reserve(const DeviceTokens& batch, bool keep) {
  const std::int64_t tokens = batch.sequences.tokens;
  // Peers must finish first, because the host waits for the device below.
  const bool grows = tokens > tokens_ || batch.rows > rows_ || (keep && !trains_);
  if (grows && peers_ != nullptr) peers_->Settle();
  if (tokens > tokens_ || (keep && !trains_)) {
    tokens_ = std::max(tokens_, tokens + tokens / 8);
    trains_ = trains_ || keep;
    device_.Synchronize();
    // Free the old memory first: both together may not fit.
    attention_.clear();
    between_.clear();
    outs_.clear();
    embedding_sum_ = {};
    for (Bytes* bytes : {&embedded_, &mapped_, &dy_, &dsum_, &dwide_, &dcontext_}) *bytes = {};
    delta_ = {};
    embedding_sum_ = MakeKeptNorm(tokens_, spec_.embedding);
    embedded_ = Elements(tokens_ * spec_.embedding, "activations");
    if (spec_.albert) mapped_ = Elements(tokens_ * spec_.hidden, "activations");
    // Inference needs only the input and output of a layer: two alternating sets.
    const std::int64_t most = recomputes() ? 1 : trains_ ? spec_.layers : 2;
    for (std::int64_t i = 0; i < std::min(spec_.layers, most); ++i)
      attention_.push_back(MakeKeptAttention(tokens_));
    for (std::int64_t i = 0; i < std::min(spec_.layers - 1, most); ++i)
      between_.push_back(MakeKeptRows(tokens_));
    for (std::int64_t i = 0; recomputes() && i < spec_.layers - 1; ++i)
      outs_.push_back(Elements(tokens_ * spec_.hidden, "activations"));
    // Gradients of activations.
    if (trains_) {
      const char* const what = "gradients of activations";
      const std::int64_t widest = std::max(spec_.hidden, spec_.embedding);
      dy_ = Elements(tokens_ * widest, what);
      dsum_ = Elements(tokens_ * widest, what);
      dwide_ = Elements(tokens_ * std::max(3 * spec_.heads_wide(), spec_.wide_share().count), what);
      dcontext_ = Elements(tokens_ * spec_.heads_wide(), what);
      delta_ = Floats(device_, tokens_ * spec_.head_share().count, "softmaxes' sums");
    }
  }
  // Memory of the last layer's rows and of the head.
  if (batch.rows > rows_) {
    device_.Synchronize();
    rows_ = batch.rows + batch.rows / 8;
    const std::int64_t widest = std::max(spec_.hidden, spec_.embedding);
    last_ = MakeKeptRows(rows_);
    for (Bytes* bytes :
         {&asked_x_, &asked_context_, &head_mid_, &head_top_, &dhead_[0], &dhead_[1]})
      *bytes = Elements(rows_ * widest, "a head's activations");
    if (spec_.masked()) {
      head_sum_ = MakeKeptNorm(rows_, spec_.embedding);
    } else {
      dout_ = Elements(rows_ * spec_.classes, "gradients of logits");
    }
  }
  const std::int64_t widest = std::max({3 * spec_.hidden, spec_.intermediate, spec_.embedding});
  // Workspace of the bias gradients.
  const std::int64_t sums = std::max(SumRowsWorkspace(tokens_, widest),
                                     SumRowsWorkspace(rows_, std::max(widest, spec_.vocabulary)));
  if (trains_ && sums > sum_workspace_.size()) {
    device_.Synchronize();
    sum_workspace_ = {};
    sum_workspace_ = Floats(device_, sums, "partial sums of biases' gradients");
  }
}

// Must match the allocations of Reserve.
std::int64_t Transformer::StepBytes(const TransformerSpec& spec, Precision precision,
                                    std::int64_t tokens, std::int64_t rows) {
  const std::int64_t element = ElementBytes(ElementType(precision));
  const std::int64_t hidden = spec.hidden, widest = std::max(hidden, spec.embedding);
  const std::int64_t heads = spec.heads_wide(), lse = 4 * spec.head_share().count;
  const std::int64_t wide = spec.wide_share().count, norm = 2 * 4;  // mean and deviation
  // Bytes per token: attention, the rest of a layer, then everything that is held per token and per
  // row.
  const std::int64_t attention = 4 * heads * element + lse;
  const std::int64_t behind = (4 * hidden + 2 * wide) * element + 2 * norm;
  const std::int64_t uses = spec.recompute ? 1 : spec.layers;
  std::int64_t token = 2 * spec.embedding * element + norm + uses * attention;
  if (spec.albert) token += hidden * element;
  token += std::min(spec.layers - 1, uses) * behind;
  if (spec.recompute) token += (spec.layers - 1) * hidden * element;
  token += (2 * widest + std::max(3 * heads, wide) + heads) * element + lse;
  std::int64_t row = behind + 6 * widest * element;
  row += spec.masked() ? spec.embedding * element + norm : spec.classes * element;
  tokens += tokens / 8, rows += rows / 8;
  const std::int64_t sums =
      std::max(SumRowsWorkspace(tokens, std::max({3 * hidden, spec.intermediate, spec.embedding})),
               SumRowsWorkspace(rows, std::max({3 * hidden, spec.intermediate, spec.vocabulary})));
  const std::int64_t scores =
      DrawsScores(spec, precision) ? uses * 4 * ScoresWords(spec, tokens) : 0;
  return tokens * token + rows * row + 4 * sums + 4 * LayerNormWorkspace(widest) + scores;
}

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
          attention_[std::size_t(use) % attention_.size()].scores.data()};
}

// y [rows, out] = x · wᵀ + b. If y is a sum over the ranks, only the first rank adds b.
void Transformer::Linear(const Step& step, const TransformerSpec::Linear& linear, std::int64_t rows,
                         const void* x, void* y, DType y_dtype) {
  const bool sums = linear.cut == TransformerSpec::Linear::Cut::kIn;
  const bool biased = !sums || spec_.place.rank == 0;
  MatMul(step.stream, plans_,
         {.shape = {.m = rows, .n = linear.out, .k = linear.in, .transpose_b = true},
          .precision = precision_,
          .a = x,
          .b = Weight(step.weights, linear.weight),
          .c = y,
          .c_dtype = y_dtype,
          .epilogue = biased ? Epilogue::kBias : Epilogue::kNone,
          .bias = biased ? Bias(step.weights, linear.bias, y_dtype) : nullptr});
  if (sums) SumOverParts(step, y, rows * linear.out);
}

// Accumulates a bias gradient.
void Transformer::AddRows(const Step& step, std::int64_t rows, std::int64_t n, const void* x,
                          std::int64_t stride, std::int64_t at) {
  SumRows(step.stream, {.rows = rows,
                        .n = n,
                        .stride = stride,
                        .x = x,
                        .dtype = element_,
                        .sum = step.gradient + at,
                        .add = true,
                        .workspace = sum_workspace_.data()});
}

// dx = dz · w + beta dx; nullptr: not wanted. If dz is a rank's share, dx is the sum over the
// ranks, and only the first rank adds beta dx.
void Transformer::LinearBackward(const Step& step, const TransformerSpec::Linear& linear,
                                 std::int64_t rows, const void* x, const void* dz, float beta,
                                 void* dx) {
  MatMul(step.stream, plans_,
         {.shape = {.m = linear.out, .n = linear.in, .k = rows, .transpose_a = true},
          .precision = precision_,
          .a = dz,
          .b = x,
          .c = step.gradient + linear.weight,
          .beta = 1});
  AddRows(step, rows, linear.out, dz, linear.out, linear.bias);
  if (dx == nullptr) return;
  const bool sums = linear.cut == TransformerSpec::Linear::Cut::kOut;
  MatMul(step.stream, plans_,
         {.shape = {.m = rows, .n = linear.in, .k = linear.out},
          .precision = precision_,
          .a = dz,
          .b = Weight(step.weights, linear.weight),
          .c = dx,
          .c_dtype = element_,
          .beta = sums && spec_.place.rank > 0 ? 0 : beta});
  if (sums) SumOverParts(step, dx, rows * linear.in);
}

// Layer norm with the statistics kept.
void Transformer::Norm(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
                       const KeptNorm& kept, void* y) {
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
                               std::int64_t rows, const KeptNorm& kept, const void* dy, void* dx) {
  LayerNormBackward(step.stream, {.shape = {rows, norm.n, spec_.epsilon},
                                  .dtype = element_,
                                  .x = kept.x.data(),
                                  .gamma = step.weights.value + norm.gamma,
                                  .mean = kept.mean.data(),
                                  .rstd = kept.rstd.data(),
                                  .dy = dy,
                                  .dx = dx,
                                  .dgamma = step.gradient + norm.gamma,
                                  .dbeta = step.gradient + norm.beta,
                                  .workspace = norm_workspace_.data()});
}

// Embeddings, summed over the ranks, then the layers and the head.
void Transformer::Forward(Stream& stream, const TransformerWeights& weights,
                          const DeviceTokens& batch, bool keep, void* out) {
  Reserve(batch, keep);
  const Step step{stream, weights, batch};
  const float* const value = weights.value;
  const Share words = spec_.word_share();
  // Tokens of other ranks give 0; positions and types are added by rank 0 only.
  EmbedTokens(stream, {.batch = batch.sequences,
                       .width = spec_.embedding,
                       .id = batch.id,
                       .tables = {.word = value + spec_.word_table,
                                  .position = value + spec_.position_table,
                                  .type = value + spec_.type_table,
                                  .first_word = std::int32_t(words.first),
                                  .words = std::int32_t(words.count),
                                  .places = spec_.place.rank == 0},
                       .dtype = element_,
                       .out = embedding_sum_.x.data()});
  // The sum over the ranks completes the embeddings.
  SumOverParts(step, embedding_sum_.x.data(), step.tokens() * spec_.embedding);
  Norm(step, spec_.embedding_norm, step.tokens(), embedding_sum_, embedded_.data());
  const Dropout dropout = DropoutAt(batch, kEmbeddingSite, spec_.hidden_dropout);
  DropAdd(stream, {.batch = batch.sequences,
                   .dropout = dropout,
                   .width = spec_.embedding,
                   .dtype = element_,
                   .x = embedded_.data(),
                   .y = embedded_.data()});
  if (spec_.albert)
    Linear(step, spec_.map, step.tokens(), embedded_.data(), mapped_.data(), element_);
  for (std::int64_t use = 0; use < spec_.layers; ++use) ForwardLayer(step, use, InOf(use));
  ForwardHead(step, last_.out.data(), out);
}

// y = dropout(x) + add, for all tokens or, in the last layer, for the requested rows.
void Transformer::DropAddOf(const Step& step, std::int64_t use, std::uint32_t which, float rate,
                            const void* x, const void* add, void* y) {
  const DeviceTokens& batch = step.batch;
  const Dropout dropout = DropoutAt(batch, SiteOf(use, which), rate);
  if (IsLast(use)) {
    DropAddRows(step.stream, {.batch = batch.sequences,
                              .dropout = dropout,
                              .rows = batch.rows,
                              .token = batch.chosen,
                              .width = spec_.hidden,
                              .dtype = element_,
                              .x = x,
                              .add = add,
                              .y = y});
  } else {
    DropAdd(step.stream, {.batch = batch.sequences,
                          .dropout = dropout,
                          .width = spec_.hidden,
                          .dtype = element_,
                          .x = x,
                          .add = add,
                          .y = y});
  }
}

// Like EncoderLayer::Forward. The last layer continues with only the requested rows after the
// attention.
void Transformer::ForwardLayer(const Step& step, std::int64_t use, const void* x) {
  const TransformerSpec::Layer& layer = LayerOf(use);
  const DeviceTokens& batch = step.batch;
  const KeptAttention& attention = AttentionOf(use);
  const KeptRows& kept = RowsOf(use);
  // 1. Projections and attention for all tokens.
  Linear(step, layer.qkv, step.tokens(), x, attention.qkv.data(), element_);
  AttentionForward(step.stream, {.batch = batch.sequences,
                                 .form = FormOf(batch, use),
                                 .qkv = attention.qkv.data(),
                                 .out = attention.context.data(),
                                 .lse = attention.lse.data()});
  std::int64_t rows = step.tokens();
  const void* context = attention.context.data();
  if (IsLast(use)) {
    rows = batch.rows;
    GatherRows(step.stream, {.rows = rows,
                             .width = spec_.hidden,
                             .row = batch.chosen,
                             .dtype = element_,
                             .from = x,
                             .to = asked_x_.data()});
    GatherRows(step.stream, {.rows = rows,
                             .width = spec_.heads_wide(),
                             .row = batch.chosen,
                             .dtype = element_,
                             .from = context,
                             .to = asked_context_.data()});
    x = asked_x_.data();
    context = asked_context_.data();
  }
  // 2. Output projection, dropout, residual, norm.
  Linear(step, layer.attention_out, rows, context, kept.sum1.x.data(), element_);
  DropAddOf(step, use, 1, spec_.hidden_dropout, kept.sum1.x.data(), x, kept.sum1.x.data());
  Norm(step, layer.norm1, rows, kept.sum1, kept.hidden.data());
  // 3. Feed-forward, dropout (BERT only), residual, norm.
  Linear(step, layer.ffn, rows, kept.hidden.data(), kept.z.data(), element_);
  Gelu(step.stream, {.form = spec_.gelu,
                     .dtype = element_,
                     .n = rows * layer.ffn.out,
                     .z = kept.z.data(),
                     .y = kept.g.data()});
  Linear(step, layer.ffn_out, rows, kept.g.data(), kept.sum2.x.data(), element_);
  DropAddOf(step, use, 2, spec_.albert ? 0 : spec_.hidden_dropout, kept.sum2.x.data(),
            kept.hidden.data(), kept.sum2.x.data());
  Norm(step, layer.norm2, rows, kept.sum2, OutOf(use));
}

// Masked-LM: transform and tied decoder. Otherwise: pooler, dropout, classifier.
void Transformer::ForwardHead(const Step& step, const void* x, void* out) {
  const std::int64_t rows = step.batch.rows;
  if (spec_.masked()) {
    Linear(step, spec_.first, rows, x, head_mid_.data(), element_);
    Gelu(step.stream, {.form = spec_.gelu,
                       .dtype = element_,
                       .n = rows * spec_.embedding,
                       .z = head_mid_.data(),
                       .y = head_sum_.x.data()});
    Norm(step, spec_.head_norm, rows, head_sum_, head_top_.data());
    return MatMul(step.stream, plans_,
                  {.shape = {.m = rows,
                             .n = outputs(),
                             .k = spec_.embedding,
                             .transpose_b = true,
                             .ldc = stride()},
                   .precision = precision_,
                   .a = head_top_.data(),
                   .b = Weight(step.weights, spec_.word_table),
                   .c = out,
                   .c_dtype = element_,
                   .epilogue = Epilogue::kBias,
                   .bias = Bias(step.weights, spec_.word_bias, element_)});
  }
  // tanh is fused into the pooler.
  LinearForward(step.stream, plans_,
                {.precision = precision_,
                 .shape = {spec_.first.in, spec_.first.out},
                 .activation = Activation::kTanh,
                 .batch = rows,
                 .x = x,
                 .weight = Weight(step.weights, spec_.first.weight),
                 .bias = Bias(step.weights, spec_.first.bias, element_),
                 .y = head_mid_.data(),
                 .y_dtype = element_});
  DropAdd(step.stream, {.batch = EachRow(rows),
                        .dropout = DropoutAt(step.batch, kClassifierSite, spec_.classifier_dropout),
                        .width = spec_.hidden,
                        .dtype = element_,
                        .x = head_mid_.data(),
                        .y = head_top_.data()});
  Linear(step, spec_.classifier, rows, head_top_.data(), out, DType::kF32);
}

// Reports ranges in the stream's order; a shared layer is complete after its first use.
void Transformer::Backward(Stream& stream, const TransformerWeights& weights,
                           const DeviceTokens& batch, const void* dout, float* gradient,
                           const Ready& ready) {
  const Step step{stream, weights, batch, gradient};
  BackwardHead(step, dout);
  if (ready) ready(spec_.head_begin);
  for (std::int64_t use = spec_.layers; use-- > 0;) {
    // The last layer's activations are still in memory.
    if (recomputes() && !IsLast(use)) ForwardLayer(step, use, InOf(use));
    BackwardLayer(step, use, InOf(use));
    if (ready && (!spec_.albert || use == 0)) ready(LayerOf(use).begin);
  }
  BackwardEmbedding(step);
  if (ready) ready(0);
}

// Computes the gradient of the last layer's output, [rows, hidden], into dhead_[1].
void Transformer::BackwardHead(const Step& step, const void* dout) {
  const std::int64_t rows = step.batch.rows;
  Stream& stream = step.stream;
  std::byte* const dmid = dhead_[0].data();
  if (spec_.masked()) {
    const std::int64_t words = outputs(), embedding = spec_.embedding;
    MatMul(stream, plans_,  // the decoder is tied to the embeddings
           {.shape = {.m = words, .n = embedding, .k = rows, .transpose_a = true, .lda = stride()},
            .precision = precision_,
            .a = dout,
            .b = head_top_.data(),
            .c = step.gradient + spec_.word_table,
            .beta = 1});
    // The decoder's bias.
    AddRows(step, rows, words, dout, stride(), spec_.word_bias);
    MatMul(stream, plans_,
           {.shape = {.m = rows, .n = embedding, .k = words, .lda = stride()},
            .precision = precision_,
            .a = dout,
            .b = Weight(step.weights, spec_.word_table),
            .c = dmid,
            .c_dtype = element_});
    SumOverParts(step, dmid, rows * embedding);
    NormBackward(step, spec_.head_norm, rows, head_sum_, dmid, dmid);
    GeluBackward(stream, {.form = spec_.gelu,
                          .dtype = element_,
                          .n = rows * embedding,
                          .z = head_mid_.data(),
                          .dy = dmid,
                          .dz = dmid});
  } else {
    // The loss gives f32 gradients of logits.
    ConvertScaled(
        stream,
        {.n = rows * spec_.classes, .from = dout, .to = dout_.data(), .to_dtype = element_});
    LinearBackward(step, spec_.classifier, rows, head_top_.data(), dout_.data(), 0, dmid);
    DropAdd(stream, {.batch = EachRow(rows),
                     .dropout = DropoutAt(step.batch, kClassifierSite, spec_.classifier_dropout),
                     .width = spec_.hidden,
                     .dtype = element_,
                     .x = dmid,
                     .y = dmid});
    ActivationBackward(stream, {.activation = Activation::kTanh,
                                .dtype = element_,
                                .n = rows * spec_.hidden,
                                .y = head_mid_.data(),
                                .dy = dmid,
                                .dz = dmid});
  }
  LinearBackward(step, spec_.first, rows, last_.out.data(), dmid, 0, dhead_[1].data());
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

// Turns dy_ [T, hidden] (in the last layer dhead_[1]) into the gradient of x, in dy_. After each
// norm, dy_ is the gradient of the residual sum and dsum_ that of the branch with dropout.
void Transformer::BackwardLayer(const Step& step, std::int64_t use, const void* x) {
  const TransformerSpec::Layer& layer = LayerOf(use);
  const DeviceTokens& batch = step.batch;
  const KeptAttention& attention = AttentionOf(use);
  const KeptRows& kept = RowsOf(use);
  const bool last = IsLast(use);
  const std::int64_t rows = last ? batch.rows : step.tokens();
  std::byte* const dy = (last ? dhead_[1] : dy_).data();
  // 1. Feed-forward branch.
  NormBackward(step, layer.norm2, rows, kept.sum2, dy, dy);
  DropAddOf(step, use, 2, spec_.albert ? 0 : spec_.hidden_dropout, dy, nullptr, dsum_.data());
  LinearBackward(step, layer.ffn_out, rows, kept.g.data(), dsum_.data(), 0, dwide_.data());
  GeluBackward(step.stream, {.form = spec_.gelu,
                             .dtype = element_,
                             .n = rows * layer.ffn.out,
                             .z = kept.z.data(),
                             .dy = dwide_.data(),
                             .dz = dwide_.data()});
  LinearBackward(step, layer.ffn, rows, kept.hidden.data(), dwide_.data(), 1, dy);
  // 2. Attention branch; the last layer spreads its rows over all tokens.
  NormBackward(step, layer.norm1, rows, kept.sum1, dy, dy);
  DropAddOf(step, use, 1, spec_.hidden_dropout, dy, nullptr, dsum_.data());
  if (last) {
    LinearBackward(step, layer.attention_out, rows, asked_context_.data(), dsum_.data(), 0,
                   dhead_[0].data());
    Spread(step, dhead_[0].data(), spec_.heads_wide(), dcontext_.data());
    Spread(step, dy, spec_.hidden, dy_.data());
  } else {
    LinearBackward(step, layer.attention_out, rows, attention.context.data(), dsum_.data(), 0,
                   dcontext_.data());
  }
  // 3. Attention, and the residual gradient in dy_.
  AttentionBackward(step.stream, {.batch = batch.sequences,
                                  .form = FormOf(batch, use),
                                  .qkv = attention.qkv.data(),
                                  .out = attention.context.data(),
                                  .lse = attention.lse.data(),
                                  .dout = dcontext_.data(),
                                  .dqkv = dwide_.data(),
                                  .delta = delta_.data()});
  LinearBackward(step, layer.qkv, step.tokens(), x, dwide_.data(), 1, dy_.data());
}

// Through ALBERT's map, dropout and norm into the three tables.
void Transformer::BackwardEmbedding(const Step& step) {
  std::byte* dsum = dy_.data();
  if (spec_.albert) {
    LinearBackward(step, spec_.map, step.tokens(), embedded_.data(), dy_.data(), 0, dsum_.data());
    dsum = dsum_.data();
  }
  const DeviceTokens& batch = step.batch;
  DropAdd(step.stream, {.batch = batch.sequences,
                        .dropout = DropoutAt(batch, kEmbeddingSite, spec_.hidden_dropout),
                        .width = spec_.embedding,
                        .dtype = element_,
                        .x = dsum,
                        .y = dsum});
  NormBackward(step, spec_.embedding_norm, step.tokens(), embedding_sum_, dsum, dsum);
  EmbedTokensBackward(step.stream, {.batch = batch.sequences,
                                    .width = spec_.embedding,
                                    .words = batch.words,
                                    .dtype = element_,
                                    .dout = dsum,
                                    .gradient = {.word = step.gradient + spec_.word_table,
                                                 .position = step.gradient + spec_.position_table,
                                                 .type = step.gradient + spec_.type_table},
                                    .workspace = sum_workspace_.data()});
}

}  // namespace troop::cuda
