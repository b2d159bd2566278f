// Implements decoding step by step with the parts of the translation model.

#include "nn/translation/sentence_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/recurrent/lstm_cell.h"

namespace troop {
namespace {

// Grows by a quarter more than needed, so that slowly growing sentences reallocate rarely.
std::span<std::byte> Grown(MutableBuffer* buffer, std::size_t bytes) {
  if (buffer->size() < bytes) *buffer = MutableBuffer(bytes + bytes / 4);
  return buffer->bytes();
}

// Replaces the logits of a row by log probabilities; sums are f64.
void LogSoftmax(std::span<float> row) {
  const float most = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(double(x) - double(most));
  const double lse = double(most) + std::log(sum);
  for (float& x : row) x = float(double(x) - lse);
}

}  // namespace

SentenceDecoder::SentenceDecoder(const Gnmt* model, std::span<const float> value,
                                 const Packed* packed)
    : model_(model),
      value_(value),
      params_(ParamsOf({.value = value, .packed = packed})),
      states_(std::size_t(model->decoder().layers())) {}

// The search calls Step with rows of the step before.
Hypothesis SentenceDecoder::Translate(std::span<const std::int32_t> source,
                                      const BeamOptions& options) {
  Begin(source, options.beam);
  return BeamSearch(options, {.vocabulary = model_->config().vocabulary,
                              .sources = sources_,
                              .step = [this](const BeamStep& step) { Step(step); }});
}

// The keys stay in `memory_` until the next sentence.
void SentenceDecoder::Begin(std::span<const std::int32_t> source, std::int64_t rows) {
  sources_ = std::int64_t(source.size());
  const SequenceAttention& attention = model_->attention();
  // A step has up to `rows` queries, all of one sentence.
  const SequenceAttention::Sizes sizes{sources_, rows, rows * sources_};
  const auto take = [&](Arena& arena) {
    attention_ = attention.TakeKept(arena, sizes);
    attention_scratch_ = attention.TakeScratch(arena, sizes, sources_);
  };
  Arena arena(Grown(&memory_, BytesTaken(take)));
  take(arena);
  Encode(source);
  attention.MapKeys(params_, sources_, attention_);
  // The first step has one row.
  const std::int64_t hidden = model_->config().hidden;
  for (State& state : states_) {
    for (auto* const part : {&state.h[1], &state.c[1]}) part->assign(std::size_t(hidden), 0.0f);
  }
}

// One sequence: time steps have the order of the batch.
void SentenceDecoder::Encode(std::span<const std::int32_t> source) {
  const LstmStack& encoder = model_->encoder();
  const std::array starts = {std::int32_t{0}, std::int32_t(source.size())};
  TimeSteps steps;
  LstmStack::Kept kept;
  LstmStack::Scratch scratch;
  const auto take = [&](Arena& arena) {
    steps = TakeTimeSteps(arena, sources_, 1);
    kept = encoder.TakeKept(arena, sources_);
    scratch = encoder.TakeScratch(arena, {.tokens = sources_, .sequences = 1});
  };
  Arena arena(Grown(&encoder_memory_, BytesTaken(take)));
  take(arena);
  FillTimeSteps(starts, &steps);
  GatherRows(source, model_->config().embedding, value_.data() + model_->source_table(), false,
             kept.x[0]);
  const TokenBatch batch{.ids = source, .starts = starts};
  const LstmStack::Use use{params_, batch, steps, kept, scratch};
  encoder.ForwardFirst(use);
  encoder.ForwardUpper(use);
  std::copy_n(kept.out.back(), sources_ * encoder.hidden(), attention_.keys);
}

// Rows that several hypotheses continue are copied for each of them.
void SentenceDecoder::TakeStates(std::span<const std::int32_t> parents) {
  const std::int64_t hidden = model_->config().hidden;
  for (State& state : states_) {
    for (auto* const part : {state.h, state.c}) {
      part[0].resize(parents.size() * std::size_t(hidden));
      for (std::size_t r = 0; r < parents.size(); ++r)
        std::copy_n(part[1].data() + parents[r] * hidden, hidden,
                    part[0].data() + std::int64_t(r) * hidden);
      part[1].resize(part[0].size());
    }
  }
}

// Computes what LstmLayer does in its forward direction, for a single time step.
const float* SentenceDecoder::RunLayer(std::size_t layer, std::int64_t rows, const float* x) {
  static const LstmKernels& kernels = LstmKernelsFor(BestCpuLevel());
  const LstmLayer& lstm = model_->decoder().layer(layer);
  const LstmLayer::Direction& weights = lstm.forward();
  const std::int64_t n = lstm.width();
  State& state = states_[layer];
  const float* const value = value_.data();
  bias_.assign(value + weights.bias_ih, value + weights.bias_ih + 4 * n);
  AddInto(4 * n, value + weights.bias_hh, bias_.data());
  // The sums of all gates, for which the kernel adds the bias.
  gates_.resize(std::size_t(rows * 4 * n));
  params_.MatMul({.m = rows, .n = 4 * n, .k = lstm.in(), .transpose_b = true}, x,
                 value + weights.weight_ih, 0, gates_.data());
  params_.MatMul({.m = rows, .n = 4 * n, .k = n, .transpose_b = true}, state.h[0].data(),
                 value + weights.weight_hh, 1, gates_.data());
  kernels.forward({rows, rows, n, n}, bias_.data(), state.c[0].data(), gates_.data(),
                  state.c[1].data(), state.h[1].data());
  return state.h[1].data();
}

// Steps: 1. embeddings and the bottom layer; 2. attention; 3. the layers above; 4. the classifier.
void SentenceDecoder::Step(const BeamStep& step) {
  const auto rows = std::int64_t(step.tokens.size());
  const GnmtConfig& config = model_->config();
  const std::int64_t hidden = config.hidden;
  TakeStates(step.parents);
  x_.resize(std::size_t(rows * std::max(config.embedding, 2 * hidden)));
  GatherRows(step.tokens, config.embedding, value_.data() + model_->target_table(), false,
             x_.data());
  const float* const bottom = RunLayer(0, rows, x_.data());
  // All rows attend to the one sentence.
  const std::array source = {std::int32_t{0}, std::int32_t(sources_)},
                   target = {std::int32_t{0}, std::int32_t(rows)};
  std::copy_n(bottom, rows * hidden, attention_.queries);
  context_.resize(std::size_t(rows * hidden));
  model_->attention().Attend({params_, source, target, attention_, attention_scratch_},
                             context_.data());
  std::copy_n(attention_.share, rows * sources_, step.attention.data());
  y_.assign(bottom, bottom + rows * hidden);
  for (std::size_t layer = 1; layer < states_.size(); ++layer) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(y_.data() + r * hidden, hidden, x_.data() + r * 2 * hidden);
      std::copy_n(context_.data() + r * hidden, hidden, x_.data() + (r * 2 + 1) * hidden);
    }
    const float* const h = RunLayer(layer, rows, x_.data());
    if (!LstmStack::IsResidual(layer)) std::ranges::fill(y_, 0.0f);
    AddInto(rows * hidden, h, y_.data());
  }
  // Normalized, since hypotheses add up log probabilities.
  model_->classifier().Forward(params_, rows, y_.data(), step.log_probability.data());
  for (std::int64_t r = 0; r < rows; ++r)
    LogSoftmax(step.log_probability.subspan(std::size_t(r * config.vocabulary),
                                            std::size_t(config.vocabulary)));
}

}  // namespace troop
