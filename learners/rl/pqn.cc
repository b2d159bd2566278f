// Implements PQN updates on the CPU.
#include "learners/rl/pqn.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "kernels/elementwise/is_finite.h"
#include "kernels/loss/q_lambda_loss.h"
#include "learners/rl/dqn.h"
#include "learners/rl/trained_algorithm.h"
#include "learners/rl/unroll_frames.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Network pass and loss; weights and optimizer state are in TrainState.
class Pqn final : public TrainedAlgorithm {
 public:
  Pqn(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
      std::unique_ptr<TrainState> trained)
      : TrainedAlgorithm(std::move(network), std::move(trained)),
        config_(config),
        env_(env),
        frames_(env, config.frame_stack) {}

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  void ApplyGradient(double progress, double norm) override {
    trained().Step(progress, norm, frames_.rows());
  }

 private:
  Status PrepareBuffers();
  DqnLossSummary ForwardAndLoss(const SampleBatch& batch);
  void Backward(GradientWatch* watch);

  const TrainingConfig config_;
  const EnvSpec env_;
  UnrollFrames frames_;  // of the last batch
  Tensor q_, dq_;        // [F_max, A]
  MutableBuffer cache_, workspace_;
  std::vector<float> priority_;  // [B]
};

// The number of frames differs between batches; buffers only grow.
Status Pqn::PrepareBuffers() {
  const ConstTensor in = frames_.rows();
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network().MakePlan({{in.spec()}}));
  if (q_.empty() || q_.dim(0) < frames_.size()) {
    q_ = Tensor(DType::kF32, {frames_.size(), env_.action.count});
    dq_ = Tensor(DType::kF32, q_.shape());
  }
  if (cache_.size() < plan.cache_bytes) cache_ = MutableBuffer::Zeros(plan.cache_bytes);
  if (workspace_.size() < plan.workspace_bytes)
    workspace_ = MutableBuffer::Zeros(plan.workspace_bytes);
  return Status::Ok();
}

// Keeps the activations for backward.
DqnLossSummary Pqn::ForwardAndLoss(const SampleBatch& batch) {
  const StepContext context{trained().value(), trained().packed_value(), {}, workspace_.bytes()};
  const ConstTensor in = frames_.rows();
  const Tensor q = q_.Rows(0, frames_.size());
  network().Forward(context, {&in, 1}, {&q, 1}, cache_.bytes());
  priority_.resize(std::size_t(batch.size()));
  return QLambdaLoss({.batch = batch.size(),
                      .actions = env_.action.count,
                      .steps = batch.reward.dim(1),
                      .q = q.data<float>(),
                      .action = batch.action.data<std::int32_t>(),
                      .reward = batch.reward.data<float>(),
                      .discount = batch.discount.data<float>(),
                      .length = batch.length.data(),
                      .weight = batch.weight.data(),
                      .gamma = config_.learner.gamma,
                      .lambda = config_.learner.lambda,
                      .reward_clip = config_.reward_clip,
                      .huber = config_.learner.loss == TdLoss::kHuber},
                     {dq_.data<float>(), priority_.data()});
}

// Uses the activations that ForwardAndLoss has kept.
void Pqn::Backward(GradientWatch* watch) {
  const std::span<float> gradient = trained().gradient();
  const StepContext context{.value = trained().value(),
                            .packed = trained().packed_value(),
                            .gradient = gradient,
                            .workspace = workspace_.bytes(),
                            .accumulate = false,  // overwrite; the padding stays 0 from the start
                            .watch = watch};
  const ConstTensor in = frames_.rows(), dout(dq_.Rows(0, frames_.size()));
  // Empty: no gradient with respect to the observations.
  const Tensor din;
  network().Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&din, 1});
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient[0] = *bad;
}

// Steps: validate, forward and loss, backward, norm. Any non-finite result rejects the batch.
Result<LossReport> Pqn::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                        GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckUnrolls(batch, env_, config_.frame_stack, priority.size()));
  frames_.Fill(batch);
  TROOP_RETURN_IF_ERROR(PrepareBuffers());
  const DqnLossSummary loss = ForwardAndLoss(batch);
  if (!std::isfinite(loss.loss) || !AllFinite(priority_)) {
    return trained().Refuse(batch, priority_, fmt::format("the loss is {}", loss.loss));
  }
  Backward(watch);
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return trained().Refuse(batch, priority_, fmt::format("the gradient norm is {}", norm));
  }
  std::ranges::copy(priority_, priority.begin());
  // The means are over steps; each unroll has one more frame.
  return LossReport{.loss = loss.loss,
                    .td_error_mean = loss.td_error_mean,
                    .q_mean = loss.q_mean,
                    .gradient_norm = norm,
                    .rows = double(frames_.size() - batch.size())};
}

}  // namespace

// The online weights are their own target.
Result<std::unique_ptr<Algorithm>> MakePqn(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network) {
  TROOP_RETURN_IF_ERROR(CheckDqn(config, env, *network));
  TROOP_ASSIGN_OR_RETURN(
      auto trained, TrainState::Make(config, network.get(), "pqn",
                                     {{ParameterCount(*network), config.optimizer.learning_rate}},
                                     TrainState::Target::kNone));
  return std::unique_ptr<Algorithm>(new Pqn(config, env, std::move(network), std::move(trained)));
}

}  // namespace troop
