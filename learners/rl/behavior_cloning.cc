// Implements behavior cloning on the CPU.

#include "learners/rl/behavior_cloning.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "learners/rl/trained_algorithm.h"
#include "learners/rl/transition_check.h"
#include "nn/models/model.h"
#include "nn/models/policy_critic.h"

namespace troop {
namespace {

// Elements of an action within this many half ranges count as equal, for the accuracy.
constexpr double kClose = 0.1;

// Loss and accuracy, both summed over the rows.
struct Sums {
  double loss = 0, correct = 0;
};

// Cross-entropy of one row of logits [n]; writes its gradient times `scale`.
Sums CrossEntropy(std::span<const float> logits, std::int32_t action, double scale,
                  std::span<float> gradient) {
  const float largest = *std::ranges::max_element(logits);
  // The largest logit is subtracted first, so that no exponential overflows.
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x - largest));
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const double p = std::exp(double(logits[k] - largest)) / sum;
    gradient[k] = float(scale * (p - (k == std::size_t(action) ? 1 : 0)));
  }
  // The first of equal logits counts, which is the action that an actor would choose.
  const auto best = std::ranges::max_element(logits) - logits.begin();
  return {.loss = std::log(sum) - double(logits[std::size_t(action)] - largest),
          .correct = best == action ? 1.0 : 0.0};
}

class BehaviorCloning final : public TrainedAlgorithm {
 public:
  BehaviorCloning(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
                  std::unique_ptr<TrainState> trained)
      : TrainedAlgorithm(std::move(network), std::move(trained)),
        config_(config),
        env_(env),
        both_(dynamic_cast<const PolicyCritic*>(&this->network())) {}

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  void ApplyGradient(double progress, double norm) override {
    trained().Step(progress, norm, observation_);
  }

 private:
  // The trained part: the policy of continuous actions, else the whole network.
  const Module& policy() const { return both_ != nullptr ? both_->policy() : network(); }
  StepContext PolicyContext(bool with_gradient);
  Status PrepareBuffers(std::int64_t batch);
  Sums DiscreteLoss(const SampleBatch& batch);
  Sums ContinuousLoss(const SampleBatch& batch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const PolicyCritic* const both_;  // network(); nullptr: discrete actions
  // Buffers that depend on the batch size.
  std::int64_t batch_ = -1;
  Tensor out_, dout_;  // [B, A]
  MutableBuffer cache_, workspace_;
  ConstTensor observation_;  // input of the last ComputeGradient
};

// The critic's part of the gradient stays 0, so its weights keep their values.
StepContext BehaviorCloning::PolicyContext(bool with_gradient) {
  const StepContext whole{.value = trained().value(),
                          .packed = trained().packed_value(),
                          .gradient = with_gradient ? trained().gradient() : std::span<float>(),
                          .workspace = workspace_.bytes(),
                          .accumulate = false};
  return both_ != nullptr ? both_->PolicyContext(whole) : whole;
}

// Allocates the buffers for a batch size; no allocation while it stays the same.
Status BehaviorCloning::PrepareBuffers(std::int64_t batch) {
  if (batch_ == batch) return Status::Ok();
  const TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, policy().MakePlan({&in, 1}));
  // One output per discrete action, or per element of a continuous one.
  const ActionSpec& action = env_.action;
  const std::int64_t width = action.discrete() ? action.count : std::int64_t(action.low.size());
  const TensorSpec want{DType::kF32, {batch, width}};
  if (plan.out.size() != 1 || !(plan.out[0] == want)) {
    return InvalidArgument("the network's output is {}, must be {}",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), want.ToString());
  }
  out_ = Tensor(DType::kF32, want.shape);
  dout_ = Tensor(DType::kF32, want.shape);
  cache_ = MutableBuffer::Zeros(plan.cache_bytes);
  workspace_ = MutableBuffer::Zeros(plan.workspace_bytes);
  batch_ = batch;
  return Status::Ok();
}

// Sums are f64, so that the loss does not depend on the order of rows in its first seven digits.
Sums BehaviorCloning::DiscreteLoss(const SampleBatch& batch) {
  const auto width = std::size_t(env_.action.count);
  const double scale = 1 / double(batch.size());
  Sums sums;
  for (std::size_t row = 0; row < std::size_t(batch.size()); ++row) {
    const Sums one = CrossEntropy(out_.as<float>().subspan(row * width, width),
                                  batch.action.as<std::int32_t>()[row], scale,
                                  dout_.as<float>().subspan(row * width, width));
    sums.loss += one.loss;
    sums.correct += one.correct;
  }
  return sums;
}

// An element with equal bounds has one value, and no error.
Sums BehaviorCloning::ContinuousLoss(const SampleBatch& batch) {
  const auto width = env_.action.low.size();
  const double scale = 2 / (double(batch.size()) * double(width));
  Sums sums;
  for (std::size_t row = 0; row < std::size_t(batch.size()); ++row) {
    // The worst element decides whether the whole action counts as equal.
    double squares = 0, worst = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const double half = (double(env_.action.high[k]) - double(env_.action.low[k])) / 2;
      const double inverse = half > 0 ? 1 / half : 0;
      const std::size_t at = row * width + k;
      const double error =
          (double(out_.as<float>()[at]) - double(batch.action.as<float>()[at])) * inverse;
      squares += error * error;
      worst = std::max(worst, std::abs(error));
      dout_.as<float>()[at] = float(scale * error * inverse);
    }
    sums.loss += squares / double(width);
    sums.correct += worst <= kClose ? 1 : 0;
  }
  return sums;
}

// Steps: validate, forward, loss, backward, norm. Any non-finite result rejects the batch.
Result<LossReport> BehaviorCloning::ComputeGradient(const SampleBatch& batch,
                                                    std::span<float> priority,
                                                    GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priority.size()));
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  std::ranges::fill(priority, 0.0F);
  const ConstTensor in(batch.observation);
  policy().Forward(PolicyContext(false), {&in, 1}, {&out_, 1}, cache_.bytes());
  const Sums sums = both_ != nullptr ? ContinuousLoss(batch) : DiscreteLoss(batch);
  const double rows = double(batch.size()), loss = sums.loss / rows;
  if (!std::isfinite(loss)) {
    return trained().Refuse(batch, priority, fmt::format("the loss is {}", loss));
  }
  StepContext context = PolicyContext(true);
  context.watch = watch;
  const ConstTensor dout(dout_);
  // Empty: no gradient with respect to the observations.
  const Tensor din;
  policy().Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&din, 1});
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) trained().gradient()[0] = *bad;
  // Nothing has changed yet, so a rejected batch leaves the weights as they were.
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return trained().Refuse(batch, priority, fmt::format("the gradient norm is {}", norm));
  }
  // ApplyGradient updates the network's observation statistics with it.
  observation_ = in;
  return LossReport{
      .loss = loss, .gradient_norm = norm, .rows = rows, .accuracy = sums.correct / rows};
}

}  // namespace

// One parameter group: the learning rate of the policy is that of the run.
Result<std::unique_ptr<Algorithm>> MakeBehaviorCloning(const TrainingConfig& config,
                                                       const EnvSpec& env,
                                                       std::unique_ptr<Module> network) {
  TROOP_ASSIGN_OR_RETURN(
      auto trained, TrainState::Make(config, network.get(), "behavior_cloning",
                                     {{ParameterCount(*network), config.optimizer.learning_rate}}));
  return std::unique_ptr<Algorithm>(
      new BehaviorCloning(config, env, std::move(network), std::move(trained)));
}

}  // namespace troop
