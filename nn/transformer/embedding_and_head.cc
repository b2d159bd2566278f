// Implements the embeddings and the heads of a transformer.
#include "nn/transformer/embedding_and_head.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise/cast.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

constexpr std::uint32_t kEmbeddingSite = 0;
constexpr std::uint32_t kClassifierSite = 1u << 31;
constexpr std::uint32_t kPoolerSite = kClassifierSite + 1;

const TransformerKernels& Kernels() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

Extent VocabularyOf(const TransformerOptions& options) {
  const std::int64_t words = options.config.vocabulary;
  return {words, ShareOf(words, options.tensor)};
}

// GatherRows and ScatterAddRows with a divided vocabulary: tokens of other ranks give 0 here and
// are trained there.
void GatherWords(const Extent& words, std::span<const std::int32_t> ids, std::int64_t width,
                 const float* table, float* out) {
  for (const std::int32_t id : ids) {
    const auto local = std::int32_t(id - words.share.first);
    if (local >= 0 && local < words.count()) {
      GatherRows({&local, 1}, width, table, false, out);
    } else {
      std::fill_n(out, width, 0.0f);
    }
    out += width;
  }
}
void ScatterAddWords(const Extent& words, std::span<const std::int32_t> ids, std::int64_t width,
                     const float* dout, float* dtable) {
  for (const std::int32_t id : ids) {
    const auto local = std::int32_t(id - words.share.first);
    if (local >= 0 && local < words.count()) ScatterAddRows({&local, 1}, width, dout, dtable);
    dout += width;
  }
}

}  // namespace

EmbeddingPart::EmbeddingPart(const TransformerOptions& options, ParamLayout& layout)
    : config_(options.config), vocabulary_(VocabularyOf(options)) {
  const TransformerConfig& config = config_;
  // Parameter names of the package transformers.
  const std::string family = NameOf(config.family);
  const std::string prefix = family + ".embeddings.";
  const std::int64_t width = config.embedding;
  words_ = layout.Weight(prefix + "word_embeddings.weight", {vocabulary_.count(), width},
                         vocabulary_.Along(0));
  const std::string places = prefix + "position_embeddings.weight";
  const Shape rows{config.positions, width};
  positions_ = config.sinusoids ? layout.Sinusoids(places, rows) : layout.Weight(places, rows);
  if (FormOf(config.family).types)
    types_ = layout.Weight(prefix + "token_type_embeddings.weight", {config.token_types, width});
  norm_ = NormPart(layout, prefix + "LayerNorm", width, config.epsilon);
  if (!HasMap(config)) return;
  map_ = LinearPart(layout, family + "." + FormOf(config.family).map, width, config.hidden);
}

// Without a map the output is the embedding itself.
EmbeddingPart::Kept EmbeddingPart::TakeKept(Arena& arena, std::int64_t tokens) const {
  Kept kept;
  kept.sum = norm_.TakeKept(arena, tokens);
  kept.embedded = TakeFloats(arena, tokens * config_.embedding);
  kept.out = HasMap(config_) ? TakeFloats(arena, tokens * config_.hidden) : kept.embedded;
  return kept;
}

// Calls use(position, token, count) for each run of consecutive tokens with consecutive positions:
// a sequence, or what lies between two padding ids of RoBERTa, which have their own position.
template <class F>
void EmbeddingPart::ForEachRun(const TokenBatch& batch, const F& use) const {
  const std::int64_t padding = FormOf(config_.family).padding;
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int64_t end = batch.starts[s + 1];
    std::int64_t position = padding + 1, first = batch.starts[s];
    for (std::int64_t t = first; padding >= 0 && t < end; ++t) {
      if (batch.ids[std::size_t(t)] != padding) continue;
      use(position, first, t - first);
      use(padding, t, 1);
      position += t - first;
      first = t + 1;
    }
    use(position, first, end - first);
  }
}

DropRowsArgs EmbeddingPart::Dropout(float* x, float* scratch) const {
  return {.site = kEmbeddingSite,
          .rate = config_.hidden_dropout,
          .width = config_.embedding,
          .x = x,
          .scratch = scratch};
}

// Sum of word, type and position embeddings, then norm, dropout and the map to `hidden`.
void EmbeddingPart::Forward(const Use& use) const {
  const auto& [params, batch, kept, drop_scratch] = use;
  const std::int64_t tokens = batch.tokens(), width = config_.embedding;
  GatherWords(vocabulary_, batch.ids, width, params.value + words_, kept.sum.x);
  // Each token's embedding is on one rank and 0 on the others.
  if (vocabulary_.cut()) params.Sum(tokens * width, kept.sum.x);
  if (!FormOf(config_.family).types) {
    // Segments are not distinguished.
  } else if (batch.types.empty()) {
    AddToRows(tokens, width, params.value + types_, kept.sum.x);
  } else {
    GatherRows(batch.types, width, params.value + types_, true, kept.sum.x);
  }
  ForEachRun(batch, [&](std::int64_t position, std::int64_t token, std::int64_t count) {
    AddInto(count * width, params.value + positions_ + position * width,
            kept.sum.x + token * width);
  });
  norm_.Forward(params, tokens, kept.sum, kept.embedded);
  DropTokens(batch, {}, Dropout(kept.embedded, drop_scratch));
  if (HasMap(config_)) map_.Forward(params, tokens, kept.embedded, kept.out);
}

// Mirrors Forward. The tables accumulate the gradient of the sum.
void EmbeddingPart::Backward(const Use& use, float* dy, float* scratch) const {
  const auto& [params, batch, kept, drop_scratch] = use;
  if (params.gradient == nullptr) return;  // token ids have no gradient
  const std::int64_t tokens = batch.tokens(), width = config_.embedding;
  float* dsum = dy;
  if (HasMap(config_)) {
    // From hidden to embedding.
    map_.Backward(params, {.rows = tokens, .x = kept.embedded, .dy = dy, .dx = scratch});
    dsum = scratch;
  }
  DropTokens(batch, {}, Dropout(dsum, drop_scratch));
  // The gradient of the sum goes to all tables.
  norm_.Backward(params, kept.sum,
                 {.rows = tokens, .dy = dsum, .dx = dsum, .scratch = drop_scratch});
  ScatterAddWords(vocabulary_, batch.ids, width, dsum, params.gradient + words_);
  if (!FormOf(config_.family).types) {
    // No table.
  } else if (batch.types.empty()) {
    SumOfRows(tokens, width, dsum, params.gradient + types_);
  } else {
    ScatterAddRows(batch.types, width, dsum, params.gradient + types_);
  }
  ForEachRun(batch, [&](std::int64_t position, std::int64_t token, std::int64_t count) {
    AddInto(count * width, dsum + token * width, params.gradient + positions_ + position * width);
  });
}

// The masked-LM decoder has no weight: it is tied to the word embeddings.
HeadPart::HeadPart(const TransformerOptions& options, std::int64_t words, ParamLayout& layout)
    : options_(options),
      vocabulary_(VocabularyOf(options)),
      wide_(std::max(options.config.hidden, options.config.embedding)),
      words_(words) {
  const TransformerConfig& config = options.config;
  const FamilyForm& form = FormOf(config.family);
  if (!masked()) {
    first_ = LinearPart(layout, form.pooler, config.hidden, config.hidden);
    if (!classifies()) return;
    classifier_ = LinearPart(layout, form.classifier, config.hidden, options.classes);
    layout.StartWith(options.output_bias);
    return;
  }
  first_ = LinearPart(layout, form.transform, config.hidden, config.embedding);
  norm_ = NormPart(layout, form.transform_norm, config.embedding, config.epsilon);
  bias_ = layout.Bias(form.word_bias, vocabulary_.count(), vocabulary_.Along(0));
}

std::int64_t HeadPart::outputs() const {
  if (masked()) return vocabulary_.count();
  return classifies() ? options_.classes : options_.config.hidden;
}

// Sized for the wider of hidden and embedding, which serves both heads.
HeadPart::Kept HeadPart::TakeKept(Arena& arena, std::int64_t rows) const {
  Kept kept;
  kept.mid = TakeFloats(arena, rows * wide_);
  kept.top = TakeFloats(arena, rows * wide_);
  if (!masked() && FormOf(options_.config.family).drops_first)
    kept.dropped = TakeFloats(arena, rows * options_.config.hidden);
  if (masked()) kept.sum = norm_.TakeKept(arena, rows);
  return kept;
}

DropRowsArgs HeadPart::Dropout(std::uint32_t site, float* x, float* scratch) const {
  return {.site = site,
          .rate = options_.config.classifier_dropout,
          .width = options_.config.hidden,
          .x = x,
          .scratch = scratch};
}

void HeadPart::Forward(const Use& use, float* out) const {
  if (masked()) return ForwardMasked(use, out);
  ForwardPooled(use, out);
}

// Activation of the pooled head. GELU is the exact form in every family that has it here.
void HeadPart::Activate(std::int64_t n, const float* z, float* y) const {
  switch (FormOf(options_.config.family).activation) {
    case FamilyForm::Head::kTanh:
      return ActivationForward(Activation::kTanh, n, z, y, DType::kF32);
    case FamilyForm::Head::kRelu:
      return ActivationForward(Activation::kRelu, n, z, y, DType::kF32);
    case FamilyForm::Head::kGelu:
      Kernels().gelu(GeluForm::kErf, n, z, y);
  }
}

// tanh and ReLU have their gradient from the output, GELU from its input.
void HeadPart::ActivateBackward(std::int64_t n, const float* kept, float* dy) const {
  const FamilyForm::Head activation = FormOf(options_.config.family).activation;
  if (activation == FamilyForm::Head::kGelu) {
    Kernels().gelu_backward(GeluForm::kErf, n, kept, dy, dy);
    return;
  }
  const bool tanh = activation == FamilyForm::Head::kTanh;
  ActivationBackward({.activation = tanh ? Activation::kTanh : Activation::kRelu,
                      .n = n,
                      .y = kept,
                      .dy = dy,
                      .dz = dy});
}

// Some families drop the input of the first layer, too; the dropped copy is kept for backward.
const float* HeadPart::Dropped(const Use& use) const {
  if (!FormOf(options_.config.family).drops_first) return use.x;
  const std::int64_t rows = use.batch.sequences();
  std::copy_n(use.x, rows * options_.config.hidden, use.kept.dropped);
  DropSequences(use.batch, Dropout(kPoolerSite, use.kept.dropped, use.drop_scratch));
  return use.kept.dropped;
}

void HeadPart::ForwardPooled(const Use& use, float* out) const {
  const auto& [params, batch, x, kept, drop_scratch] = use;
  const std::int64_t rows = batch.sequences(), n = rows * first_.out;
  first_.Forward(params, rows, Dropped(use), kept.mid);
  // Without a classifier the pooled vector is the output.
  float* const top = classifies() ? kept.top : out;
  Activate(n, kept.mid, top);
  if (FormOf(options_.config.family).activation != FamilyForm::Head::kGelu)
    std::copy_n(top, n, kept.mid);
  if (!classifies()) return;
  DropSequences(batch, Dropout(kClassifierSite, top, drop_scratch));
  classifier_.Forward(params, rows, top, out);
}

// Transform, GELU, norm, then the tied decoder.
void HeadPart::ForwardMasked(const Use& use, float* out) const {
  const Params& params = use.params;
  const Kept& kept = use.kept;
  const auto rows = std::int64_t(use.batch.places.size());
  first_.Forward(params, rows, use.x, kept.mid);
  Kernels().gelu(WordGelu(options_.config), rows * first_.out, kept.mid, kept.sum.x);
  norm_.Forward(params, rows, kept.sum, kept.top);
  // logits = top · Wᵀ + b, W being the word embeddings.
  params.MatMul({.m = rows, .n = outputs(), .k = first_.out, .transpose_b = true}, kept.top,
                params.value + words_, 0, out);
  AddToRows(rows, outputs(), params.value + bias_, out);
}

void HeadPart::Backward(const Use& use, const float* dout, float* dx, float* scratch) const {
  if (masked()) return BackwardMasked(use, dout, dx, scratch);
  BackwardPooled(use, dout, dx, scratch);
}

// Mirrors ForwardPooled.
void HeadPart::BackwardPooled(const Use& use, const float* dout, float* dx, float* scratch) const {
  const auto& [params, batch, x, kept, drop_scratch] = use;
  const std::int64_t rows = batch.sequences(), n = rows * first_.out;
  if (classifies()) {
    classifier_.Backward(params, {.rows = rows, .x = kept.top, .dy = dout, .dx = scratch});
    DropSequences(batch, Dropout(kClassifierSite, scratch, drop_scratch));
  } else {
    std::copy_n(dout, n, scratch);
  }
  ActivateBackward(n, kept.mid, scratch);
  const bool drops = FormOf(options_.config.family).drops_first;
  first_.Backward(params, {.rows = rows, .x = drops ? kept.dropped : x, .dy = scratch, .dx = dx});
  if (drops) DropSequences(batch, Dropout(kPoolerSite, dx, drop_scratch));
}

// Mirrors ForwardMasked. Each rank sees its share of the vocabulary, so the decoder's input
// gradient is summed over the ranks.
void HeadPart::BackwardMasked(const Use& use, const float* dout, float* dx, float* scratch) const {
  const auto& [params, batch, x, kept, drop_scratch] = use;
  const auto rows = std::int64_t(batch.places.size());
  // The word embeddings get a second gradient, as decoder.
  if (params.gradient != nullptr && rows > 0) {  // the decoder is tied to the embeddings
    params.MatMul({.m = outputs(), .n = first_.out, .k = rows, .transpose_a = true}, dout, kept.top,
                  1, params.gradient + words_);
    SumOfRows(rows, outputs(), dout, params.gradient + bias_);
  }
  params.MatMul({.m = rows, .n = first_.out, .k = outputs()}, dout, params.value + words_, 0,
                scratch);
  if (vocabulary_.cut()) params.Sum(rows * first_.out, scratch);
  // Through norm, GELU and the transform.
  norm_.Backward(params, kept.sum,
                 {.rows = rows, .dy = scratch, .dx = scratch, .scratch = drop_scratch});
  Kernels().gelu_backward(WordGelu(options_.config), rows * first_.out, kept.mid, scratch, scratch);
  first_.Backward(params, {.rows = rows, .x = x, .dy = scratch, .dx = dx});
}

}  // namespace troop
