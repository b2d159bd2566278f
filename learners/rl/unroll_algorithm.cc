// Implements the passes of algorithms that learn from unrolls.
#include "learners/rl/unroll_algorithm.h"

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
      frames_(env, config.frame_stack),
      state_columns_(StateColumns(config.network.layers)) {}

// The number of frames differs between batches; buffers only grow.
Status UnrollAlgorithm::PrepareBuffers(std::int64_t unrolls) {
  const ConstTensor in = frames_.rows();
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network().MakePlan({{in.spec()}}));
  if (out_.empty() || out_.dim(0) < frames_.size()) {
    out_ = Tensor(DType::kF32, {frames_.size(), columns_});
    dout_ = Tensor(DType::kF32, out_.shape());
  }
  if (cache_.size() < plan.cache_bytes) cache_ = MutableBuffer::Zeros(plan.cache_bytes);
  if (workspace_.size() < plan.workspace_bytes)
    workspace_ = MutableBuffer::Zeros(plan.workspace_bytes);
  priority_.resize(std::size_t(unrolls));
  return Status::Ok();
}

// Each unroll is a sequence, which begins with the state that its actor had. REQUIRES: CheckBatch.
void UnrollAlgorithm::PrepareSequences(const SampleBatch& batch) {
  if (state_columns_ == 0) return;
  const auto unrolls = std::size_t(batch.size()), columns = std::size_t(state_columns_);
  const std::size_t width = std::size_t(batch.state.dim(1));
  lengths_.resize(unrolls);
  state_.resize(unrolls * columns);
  for (std::size_t i = 0; i < unrolls; ++i) {
    lengths_[i] = batch.length[i] + 1;  // and the frame to bootstrap from
    std::ranges::copy(batch.state.as<float>().subspan(i * width, columns),
                      state_.begin() + std::ptrdiff_t(i * columns));
  }
  // The states after the last steps are not needed: the next unroll has its own.
  sequences_ = {lengths_, state_, {}, state_columns_};
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
  TROOP_RETURN_IF_ERROR(CheckUnrolls(batch, env_, config_.frame_stack, priority.size()));
  TROOP_RETURN_IF_ERROR(CheckBatch(batch));
  frames_.Fill(batch);
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  PrepareSequences(batch);
  // The activations are kept for backward.
  const StepContext context{.value = trained().value(),
                            .packed = trained().packed_value(),
                            .workspace = workspace_.bytes(),
                            .sequences = state_columns_ > 0 ? &sequences_ : nullptr};
  const ConstTensor in = frames_.rows();
  const Tensor out = out_.Rows(0, frames_.size());
  network().Forward(context, {&in, 1}, {&out, 1}, cache_.bytes());
  LossReport report =
      ComputeLoss(batch, {out.data<float>(), dout_.data<float>(), priority_.data()});
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
