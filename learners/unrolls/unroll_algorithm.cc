// Implements the passes of algorithms that learn from unrolls.
#include "learners/unrolls/unroll_algorithm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/failpoint.h"
#include "kernels/elementwise/is_finite.h"

namespace troop {

UnrollAlgorithm::UnrollAlgorithm(const TrainingConfig& config, const EnvSpec& env,
                                 std::int64_t columns, std::unique_ptr<Module> network,
                                 std::unique_ptr<TrainState> trained)
    : TrainedAlgorithm(std::move(network), std::move(trained)),
      config_(config),
      env_(env),
      columns_(columns),
      window_{config.frame_stack, config.burn_in},
      frames_(env, window_),
      burn_in_frames_(env, window_),
      state_columns_(StateColumns(config.network.layers)) {}

// Batches come from the network, so a replay with another config must not crash the learner.
Status UnrollAlgorithm::CheckState(const SampleBatch& batch) const {
  const std::int64_t steps = batch.reward.dim(1) - window_.burn_in;
  const std::int64_t columns = state_columns_ + NumbersPerStep() * steps;
  if (columns == 0) return Status::Ok();
  const TensorSpec want{DType::kF32, {batch.size(), columns}};
  if (!batch.state.empty() && batch.state.spec() == want) return Status::Ok();
  return InvalidArgument("the state of the unrolls is {}, not {}",
                         batch.state.empty() ? "missing" : batch.state.spec().ToString(),
                         want.ToString());
}

// The number of frames differs between batches; buffers only grow.
Status UnrollAlgorithm::PrepareBuffers(const SampleBatch& batch) {
  const auto plan = [&](const ConstTensor& in) { return network().MakePlan({{in.spec()}}); };
  TROOP_ASSIGN_OR_RETURN(const Plan steps, plan(frames_.rows()));
  const auto grow = [&](Tensor* tensor, std::int64_t rows) {
    if (tensor->empty() || tensor->dim(0) < rows) *tensor = Tensor(DType::kF32, {rows, columns_});
  };
  grow(&out_, frames_.size());
  grow(&dout_, frames_.size());
  if (!trained().target().empty()) grow(&target_out_, frames_.size());
  if (cache_.size() < steps.cache_bytes) cache_ = MutableBuffer::Zeros(steps.cache_bytes);
  std::size_t workspace = steps.workspace_bytes;
  if (burn_in_frames_.size() > 0) {
    TROOP_ASSIGN_OR_RETURN(const Plan before, plan(burn_in_frames_.rows()));
    workspace = std::max(workspace, before.workspace_bytes);
    grow(&burn_in_out_, burn_in_frames_.size());
  }
  if (workspace_.size() < workspace) workspace_ = MutableBuffer::Zeros(workspace);
  priority_.resize(std::size_t(batch.size()));
  return Status::Ok();
}

// Replaces the stored states by those after the burn-in. An unroll at the start of its episode has
// no burn-in, and keeps the stored state.
void UnrollAlgorithm::BurnIn(const Weights& weights, const SampleBatch& batch) {
  if (burn_in_frames_.size() == 0) return;
  const auto columns = std::size_t(state_columns_);
  const auto row = [columns](std::vector<float>& of, std::size_t i) {
    return std::span(of).subspan(i * columns, columns);
  };
  burn_in_lengths_.clear();
  burn_in_state_.clear();
  for (std::size_t i = 0; i < batch.burn_in.size(); ++i) {
    if (batch.burn_in[i] == 0) continue;
    burn_in_lengths_.push_back(batch.burn_in[i]);
    burn_in_state_.insert(burn_in_state_.end(), row(state_, i).begin(), row(state_, i).end());
  }
  burned_in_.resize(burn_in_state_.size());
  const Sequences sequences{burn_in_lengths_, burn_in_state_, burned_in_, state_columns_};
  const StepContext context{.value = weights.value,
                            .packed = weights.packed,
                            .workspace = workspace_.bytes(),
                            .sequences = &sequences};
  const ConstTensor in = burn_in_frames_.rows();
  const Tensor out = burn_in_out_.Rows(0, burn_in_frames_.size());
  network().Forward(context, {&in, 1}, {&out, 1}, {});
  for (std::size_t i = 0, b = 0; i < batch.burn_in.size(); ++i) {
    if (batch.burn_in[i] > 0) std::ranges::copy(row(burned_in_, b++), row(state_, i).begin());
  }
}

// Each unroll is a sequence, which begins with its stored state or the one after the burn-in.
void UnrollAlgorithm::Forward(const Weights& weights, const SampleBatch& batch, const Tensor& out,
                              Cache cache) {
  StepContext context{
      .value = weights.value, .packed = weights.packed, .workspace = workspace_.bytes()};
  if (state_columns_ > 0) {
    const auto unrolls = std::size_t(batch.size()), columns = std::size_t(state_columns_);
    const auto width = std::size_t(batch.state.dim(1));
    lengths_.resize(unrolls);
    state_.resize(unrolls * columns);
    for (std::size_t i = 0; i < unrolls; ++i) {
      lengths_[i] = batch.length[i] + 1;  // and the frame to bootstrap from
      const auto row = std::span(state_).subspan(i * columns, columns);
      if (config_.learner.stored_state) {
        std::ranges::copy(batch.state.as<float>().subspan(i * width, columns), row.begin());
      } else {
        std::ranges::fill(row, 0.0F);
      }
    }
    BurnIn(weights, batch);
    // The states after the last steps are not needed: the next unroll has its own.
    sequences_ = {lengths_, state_, {}, state_columns_};
    context.sequences = &sequences_;
  }
  const ConstTensor in = frames_.rows();
  network().Forward(context, {&in, 1}, {&out, 1}, cache);
}

// Uses the activations that the forward pass has kept.
void UnrollAlgorithm::Backward(GradientWatch* watch) {
  const std::span<float> gradient = trained().gradient();
  const StepContext context{.value = trained().value(),
                            .packed = trained().packed_value(),
                            .gradient = gradient,
                            .workspace = workspace_.bytes(),
                            .accumulate = false,  // overwrite; the padding stays 0 from the start
                            .watch = watch,
                            .sequences = state_columns_ > 0 ? &sequences_ : nullptr};
  const ConstTensor in = frames_.rows(), dout(dout_.Rows(0, frames_.size()));
  // Empty: no gradient with respect to the observations.
  const Tensor din;
  network().Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&din, 1});
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient[0] = *bad;
}

// Steps: validate, forward, loss, backward, norm. Any non-finite result rejects the batch.
Result<LossReport> UnrollAlgorithm::ComputeGradient(const SampleBatch& batch,
                                                    std::span<float> priority,
                                                    GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckUnrolls(batch, env_, window_, priority.size()));
  TROOP_RETURN_IF_ERROR(CheckState(batch));
  frames_.Fill(batch);
  if (state_columns_ > 0 && window_.burn_in > 0) burn_in_frames_.FillBurnIn(batch);
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch));
  // Gates saturate, so an infinite state would not show in the loss.
  if (!batch.state.empty() && !AllFinite(batch.state.as<float>()))
    return trained().Refuse(batch, priority_, "a state is not finite");
  // The target network first: then sequences_ and the cache are those of the trained one.
  const bool target = !trained().target().empty();
  if (target) {
    Forward({trained().target(), trained().packed_target()}, batch,
            target_out_.Rows(0, frames_.size()), {});
  }
  Forward({trained().value(), trained().packed_value()}, batch, out_.Rows(0, frames_.size()),
          cache_.bytes());
  LossReport report = ComputeLoss(batch, {.out = out_.data<float>(),
                                          .target = target ? target_out_.data<float>() : nullptr,
                                          .dout = dout_.data<float>(),
                                          .priority = priority_.data()});
  if (!std::isfinite(report.loss) || !AllFinite(priority_)) {
    return trained().Refuse(batch, priority_, fmt::format("the loss is {}", report.loss));
  }
  Backward(watch);
  report.gradient_norm = GradientNorm();
  if (!std::isfinite(report.gradient_norm)) {
    return trained().Refuse(batch, priority_,
                            fmt::format("the gradient norm is {}", report.gradient_norm));
  }
  std::ranges::copy(priority_, priority.begin());
  // The means are over steps; each unroll has one more frame.
  report.rows = double(frames_.size() - batch.size());
  return report;
}

}  // namespace troop
