// Implements forward, loss and backward of a text model on the CPU.

#include "learners/supervised/text_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/loss/text_loss.h"
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

// True if each label's sigmoid is on its target's side of 1/2; at 1/2 the answer is no.
bool AllLabelsCorrect(std::span<const float> row, std::span<const float> target) {
  bool correct = true;
  for (std::size_t i = 0; i < row.size(); ++i) correct &= (row[i] > 0) == (target[i] > 0.5f);
  return correct;
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
  if (!batch.types.empty()) inputs_[2] = numbers(batch.types);
  if (!batch.dropout.empty()) {
    inputs_[3] =
        ViewOfNumbers(batch.dropout, {DType::kU32, {std::int64_t(batch.dropout.size()), 4}});
  }
  if (words_ > 0) inputs_.push_back(numbers(batch.places));
  std::vector<TensorSpec> specs;
  for (const ConstTensor& input : inputs_) specs.push_back(input.spec());
  TROOP_ASSIGN_OR_RETURN(const Plan plan, module_->MakePlan(specs));
  const TensorSpec& out = plan.out[0];
  const auto rows = std::size_t(out.shape[0]);
  if (problem_ == ProblemType::kSingleLabel) {
    TROOP_CHECK(batch.labels.size() == rows, "{} labels for {} rows", batch.labels.size(), rows);
  } else if (std::int64_t(batch.targets.size()) != out.shape.elements()) {
    return InvalidArgument("{} targets for {} outputs of the model", batch.targets.size(),
                           out.shape.elements());
  }
  TROOP_CHECK(batch.weights.empty() || batch.weights.size() == rows, "{} weights for {} rows",
              batch.weights.size(), rows);
  if (logits_memory_.elements() < out.shape.elements()) {
    logits_memory_ =
        Tensor::Uninitialized(out.dtype, {out.shape.elements() + out.shape.elements() / 4});
  }
  logits_ = logits_memory_.Range(0, out.shape);
  loss_.resize(rows);
  Grow(&workspace_, plan.workspace_bytes);
  cache_bytes_ = plan.cache_bytes;
  return Status::Ok();
}

// differentiate: replaces the logits by their gradient.
TextOutcome TextStep::Judge(const TextBatch& batch, float scale, bool differentiate) {
  TextOutcome outcome{.rows = logits_.dim(0),
                      .tokens = std::int64_t(batch.ids.size()),
                      .sequences = std::int64_t(batch.starts.size()) - 1};
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
  outcome.right = problem_ == ProblemType::kSingleLabel ? JudgeLabels(batch, scale, differentiate)
                                                        : JudgeTargets(batch, scale, differentiate);
  for (std::size_t i = 0; i < loss_.size(); ++i) {
    outcome.loss +=
        batch.weights.empty() ? double(loss_[i]) : double(batch.weights[i]) * double(loss_[i]);
  }
  return outcome;
}

// Cross entropy, row by row, so that the logits of all tokens are read from memory only once.
std::int64_t TextStep::JudgeLabels(const TextBatch& batch, float scale, bool differentiate) {
  const std::int64_t rows = logits_.dim(0), n = logits_.dim(1);
  float* const x = logits_.data<float>();
  std::int64_t right = 0;
  const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const row = x + i * n;
    const std::int32_t label = batch.labels[std::size_t(i)];
    const float weight = batch.weights.empty() ? 1 : batch.weights[std::size_t(i)];
    const bool largest = IsFirstOfTheLargest({row, std::size_t(n)}, label);
    kernels.cross_entropy(1, n, row, &label, scale * weight, &loss_[std::size_t(i)],
                          differentiate ? row : nullptr);
    // A NaN logit is not exceeded by any other; it must not count as correct.
    right += largest && std::isfinite(loss_[std::size_t(i)]);
  }
  return right;
}

// Counts before the gradient replaces the logits.
std::int64_t TextStep::JudgeTargets(const TextBatch& batch, float scale, bool differentiate) {
  const std::int64_t rows = logits_.dim(0), n = logits_.dim(1);
  float* const x = logits_.data<float>();
  const bool counts = problem_ == ProblemType::kMultiLabel;
  std::int64_t right = 0;
  for (std::int64_t i = 0; counts && i < rows; ++i) {
    const auto first = std::size_t(i * n);
    right += AllLabelsCorrect(logits_.as<float>().subspan(first, std::size_t(n)),
                              std::span(batch.targets).subspan(first, std::size_t(n)));
  }
  const TextLossInput in{rows, n, x, batch.targets.data(), scale};
  const TextLossOutput out{loss_.data(), differentiate ? x : nullptr};
  if (counts) {
    BinaryCrossEntropy(in, out);
  } else {
    SquaredError(in, out);
  }
  return right;
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
