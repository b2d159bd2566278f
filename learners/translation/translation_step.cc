// Implements a training or inference pass of a translation model.

#include "learners/translation/translation_step.h"

namespace troop {
namespace {

// Grows by a quarter more than needed, so that slowly growing batches reallocate rarely.
void GrowTo(MutableBuffer* buffer, std::size_t bytes) {
  if (buffer->size() < bytes) *buffer = MutableBuffer(bytes + bytes / 4);
}

}  // namespace

// Plans for the batch's size, and grows the buffers to the plan.
Status TranslationStep::Prepare(const TranslationBatch& batch) {
  in_ = batch.Inputs();
  std::vector<TensorSpec> specs;
  for (const ConstTensor& one : in_) specs.push_back(one.spec());
  TROOP_ASSIGN_OR_RETURN(const Plan plan, model_->MakePlan(specs));
  if (logits_.spec() != plan.out[0])
    logits_ = Tensor::Uninitialized(plan.out[0].dtype, plan.out[0].shape);
  GrowTo(&workspace_, plan.workspace_bytes);
  cache_bytes_ = plan.cache_bytes;
  return Status::Ok();
}

Result<TokenLosses> TranslationStep::Forward(const Weights& weights,
                                             const TranslationBatch& batch) {
  TROOP_RETURN_IF_ERROR(Prepare(batch));
  const StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  model_->Forward(context, in_, {&logits_, 1}, {});
  return SmoothedLoss({.vocabulary = model_->config().vocabulary,
                       .labels = batch.labels,
                       .logits = logits_.data<float>()});
}

// The logits become their gradient in place.
Result<TokenLosses> TranslationStep::ForwardBackward(const Weights& weights,
                                                     const TranslationBatch& batch,
                                                     const Gradient& gradient) {
  TROOP_RETURN_IF_ERROR(Prepare(batch));
  GrowTo(&cache_, cache_bytes_);
  StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  context.dropout = batch.dropout;
  const Cache cache = cache_.bytes().first(cache_bytes_);
  model_->Forward(context, in_, {&logits_, 1}, cache);
  const TokenLosses losses = SmoothedLoss({.vocabulary = model_->config().vocabulary,
                                           .labels = batch.labels,
                                           .smoothing = gradient.smoothing,
                                           .scale = gradient.scale,
                                           .differentiate = true,
                                           .logits = logits_.data<float>()});
  context.gradient = gradient.gradient;
  context.watch = gradient.watch;
  const ConstTensor dout = logits_;
  model_->Backward(context, in_, {&dout, 1}, cache, {});
  return losses;
}

}  // namespace troop
