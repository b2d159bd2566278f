// Implements forward, loss and backward of a text model on the CPU.

#include "learners/supervised/text_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {
namespace {

// A tensor over the batch's memory, without a copy.
template <class T>
ConstTensor ViewOfNumbers(const std::vector<T>& numbers, const TensorSpec& spec) {
  return ConstTensor::Borrow(std::as_bytes(std::span(numbers)), spec);
}

// True if `label` is the index that max_element returns; branch-free, so that it vectorizes.
bool IsFirstOfTheLargest(std::span<const float> row, std::int32_t label) {
  if (label < 0 || std::size_t(label) >= row.size()) return false;
  const float mine = row[std::size_t(label)];
  bool beaten = false;
  for (const float x : row.first(std::size_t(label))) beaten |= x >= mine;
  for (const float x : row.subspan(std::size_t(label))) beaten |= x > mine;
  return !beaten;
}

// Grows by a quarter more than needed, so that slowly growing batches reallocate rarely.
void Grow(MutableBuffer* buffer, std::size_t bytes) {
  if (buffer->size() < bytes) *buffer = MutableBuffer(bytes + bytes / 4);
}

}  // namespace

TextOutcome& TextOutcome::operator+=(const TextOutcome& other) {
  loss += other.loss;
  rows += other.rows;
  right += other.right;
  tokens += other.tokens;
  sequences += other.sequences;
  return *this;
}

// Plans for the batch's sizes, and grows the buffers to the plan.
Status TextStep::Prepare(const TextBatch& batch) {
  const auto numbers = [](const std::vector<std::int32_t>& of) {
    return ViewOfNumbers(of, {DType::kI32, {std::int64_t(of.size())}});
  };
  // The order of the module's inputs: ids, starts, token types, dropout keys, places.
  inputs_ = {numbers(batch.ids), numbers(batch.starts), ConstTensor(), ConstTensor()};
  if (!batch.dropout.empty()) {
    inputs_[3] =
        ViewOfNumbers(batch.dropout, {DType::kU32, {std::int64_t(batch.dropout.size()), 4}});
  }
  if (words_ > 0) inputs_.push_back(numbers(batch.places));
  std::vector<TensorSpec> specs;
  for (const ConstTensor& input : inputs_) specs.push_back(input.spec());
  TROOP_ASSIGN_OR_RETURN(const Plan plan, module_->MakePlan(specs));
  TROOP_CHECK(plan.out[0].shape[0] == std::int64_t(batch.labels.size()), "{} labels for {} rows",
              batch.labels.size(), plan.out[0].shape[0]);
  const TensorSpec& out = plan.out[0];
  if (logits_memory_.elements() < out.shape.elements()) {
    logits_memory_ =
        Tensor::Uninitialized(out.dtype, {out.shape.elements() + out.shape.elements() / 4});
  }
  logits_ = logits_memory_.Range(0, out.shape);
  loss_.resize(batch.labels.size());
  Grow(&workspace_, plan.workspace_bytes);
  cache_bytes_ = plan.cache_bytes;
  return Status::Ok();
}

// differentiate: replaces the logits by their gradient.
TextOutcome TextStep::Judge(const TextBatch& batch, float scale, bool differentiate) {
  const std::int64_t rows = logits_.dim(0), n = logits_.dim(1);
  TextOutcome outcome{.rows = rows,
                      .tokens = std::int64_t(batch.ids.size()),
                      .sequences = std::int64_t(batch.starts.size()) - 1};
  float* const x = logits_.data<float>();
  // Vocabulary slices: the softmax needs sums over all ranks, and the best token is not computed.
  if (words_ > 0 && tensor_ != nullptr) {
    SlicedCrossEntropy(tensor_, {.vocabulary = words_,
                                 .labels = batch.labels,
                                 .scale = scale,
                                 .logits = logits_.as<float>(),
                                 .loss = loss_});
    for (const float loss : loss_) outcome.loss += loss;
    return outcome;
  }
  // Row by row, so that the logits of all tokens are read from memory only once.
  const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const row = x + i * n;
    const std::int32_t label = batch.labels[std::size_t(i)];
    const bool largest = IsFirstOfTheLargest({row, std::size_t(n)}, label);
    kernels.cross_entropy(1, n, row, &label, scale, &loss_[std::size_t(i)],
                          differentiate ? row : nullptr);
    // A NaN logit is not exceeded by any other; it must not count as correct.
    outcome.right += largest && std::isfinite(loss_[std::size_t(i)]);
  }
  for (const float loss : loss_) outcome.loss += loss;
  return outcome;
}

// Without a cache, since no backward pass follows.
Result<TextOutcome> TextStep::Forward(const Weights& weights, const TextBatch& batch) {
  TROOP_RETURN_IF_ERROR(Prepare(batch));
  StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  context.tensor = tensor_;
  module_->Forward(context, inputs_, {&logits_, 1}, {});
  return Judge(batch, 1, false);
}

// Judge turns logits_ into the output gradient in place.
Result<TextOutcome> TextStep::ForwardBackward(const Weights& weights, const TextBatch& batch,
                                              const Gradient& gradient) {
  TROOP_RETURN_IF_ERROR(Prepare(batch));
  Grow(&cache_, cache_bytes_);
  StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  context.tensor = tensor_;
  const Cache cache = cache_.bytes().first(cache_bytes_);
  module_->Forward(context, inputs_, {&logits_, 1}, cache);
  const TextOutcome outcome = Judge(batch, gradient.scale, true);
  context.gradient = gradient.gradient;
  context.accumulate = gradient.accumulate;
  context.watch = gradient.watch;
  const ConstTensor dout = logits_;
  module_->Backward(context, inputs_, {&dout, 1}, cache, {});
  return outcome;
}

}  // namespace troop
