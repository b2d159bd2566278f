// Implements DQN updates on the CPU.

#include "learners/rl/dqn.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/failpoint.h"
#include "core/base/philox.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/rl/td_loss.h"
#include "learners/rl/trained_algorithm.h"
#include "learners/rl/transition_check.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Buffers that depend on the batch size: q-values, and the network's cache and workspace.
struct BatchBuffers {
  std::int64_t batch = -1;
  Tensor q, q_next_online, q_next_target, dq;  // [B, A K]
  MutableBuffer cache, workspace;
  std::vector<float> priority;  // [B]
};

// Network passes and loss; weights and optimizer state are in TrainState.
class Dqn final : public TrainedAlgorithm {
 public:
  Dqn(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
      std::unique_ptr<TrainState> trained, int learner)
      : TrainedAlgorithm(std::move(network), std::move(trained)),
        config_(config),
        env_(env),
        learner_(std::uint64_t(learner)),
        form_(GetValueHead(ModelSetupOf(config))) {}

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  void ApplyGradient(double progress, double norm) override {
    trained().Step(progress, norm, observation_);
  }

 private:
  // Independent draws of the noise in an update.
  enum class Noise : std::uint8_t { kOnline, kTarget, kChoice };

  Status PrepareBuffers(std::int64_t batch);
  // One pass of a network, with the noise of its draw.
  struct Pass {
    std::span<const float> value;
    const Packed* packed = nullptr;
    Noise draw = Noise::kOnline;
    bool keep = false;  // stores the activations for Backward
  };
  void Evaluate(const Pass& pass, const Tensor& observation, const Tensor& q);
  std::optional<NoiseKey> NoiseOf(Noise draw) const;
  DqnLossSummary ForwardAndLoss(const SampleBatch& batch);
  void Backward(const SampleBatch& batch, GradientWatch* watch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::uint64_t learner_;
  const ValueHead form_;
  BatchBuffers buffers_;
  ConstTensor observation_;  // input of the last ComputeGradient
};

// Allocates the buffers for a batch size; no allocation while it stays the same.
Status Dqn::PrepareBuffers(std::int64_t batch) {
  if (buffers_.batch == batch) return Status::Ok();
  const TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network().MakePlan({&in, 1}));
  const TensorSpec want{DType::kF32, {batch, env_.action.count * form_.numbers}};
  if (plan.out.size() != 1 || !(plan.out[0] == want)) {
    return InvalidArgument("the network's output is {}, must be {}",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), want.ToString());
  }
  buffers_ = BatchBuffers{};
  for (Tensor* t : {&buffers_.q, &buffers_.q_next_online, &buffers_.q_next_target, &buffers_.dq}) {
    *t = Tensor(DType::kF32, want.shape);
  }
  buffers_.cache = MutableBuffer::Zeros(plan.cache_bytes);
  buffers_.workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  buffers_.priority.resize(std::size_t(batch));
  buffers_.batch = batch;
  return Status::Ok();
}

// Keyed by learner and update, so that nothing is stored; nullopt: no layer is noisy.
std::optional<NoiseKey> Dqn::NoiseOf(Noise draw) const {
  if (!config_.network.noisy) return std::nullopt;
  const std::uint64_t seed = DeriveSeed({.run_seed = std::uint64_t(config_.seed),
                                         .purpose = Purpose::kNoisyUpdates,
                                         .index = learner_,
                                         .episode = trained().updates()});
  return NoiseKey{seed, std::uint64_t(draw)};
}

void Dqn::Evaluate(const Pass& pass, const Tensor& observation, const Tensor& q) {
  const StepContext context{.value = pass.value,
                            .packed = pass.packed,
                            .workspace = buffers_.workspace.bytes(),
                            .noise = NoiseOf(pass.draw)};
  const ConstTensor in(observation);
  network().Forward(context, {&in, 1}, {&q, 1}, pass.keep ? buffers_.cache.bytes() : Cache{});
}

DqnLossSummary Dqn::ForwardAndLoss(const SampleBatch& batch) {
  // The target network first: then the online weights are still in the CPU cache for backward.
  const bool double_q = config_.learner.double_q;
  Evaluate({trained().target(), trained().packed_target(), Noise::kTarget}, batch.next_observation,
           buffers_.q_next_target);
  // Double Q: the online network selects the action, the target network evaluates it.
  if (double_q) {
    Evaluate({trained().value(), trained().packed_value(), Noise::kChoice}, batch.next_observation,
             buffers_.q_next_online);
  }
  // Keeps the activations for backward.
  Evaluate({trained().value(), trained().packed_value(), Noise::kOnline, true}, batch.observation,
           buffers_.q);
  return TdLoss(config_, form_, batch,
                {.actions = env_.action.count,
                 .first = buffers_.q.data<float>(),
                 .last_target = buffers_.q_next_target.data<float>(),
                 .last_online = double_q ? buffers_.q_next_online.data<float>() : nullptr,
                 .action = batch.action.data<std::int32_t>()},
                {buffers_.dq.data<float>(), buffers_.priority.data()});
}

// Uses the activations that ForwardAndLoss has kept.
void Dqn::Backward(const SampleBatch& batch, GradientWatch* watch) {
  const std::span<float> gradient = trained().gradient();
  const StepContext context{.value = trained().value(),
                            .packed = trained().packed_value(),
                            .gradient = gradient,
                            .workspace = buffers_.workspace.bytes(),
                            .accumulate = false,  // overwrite; the padding stays 0 from the start
                            .watch = watch,
                            .noise = NoiseOf(Noise::kOnline)};
  const ConstTensor in(batch.observation), dout(buffers_.dq);
  // Empty: no gradient with respect to the observations.
  const Tensor din;
  network().Backward(context, {&in, 1}, {&dout, 1}, buffers_.cache.bytes(), {&din, 1});
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient[0] = *bad;
}

// Steps: validate, forward and loss, backward, norm. Any non-finite result rejects the batch.
Result<LossReport> Dqn::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                        GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priority.size()));
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  const DqnLossSummary loss = ForwardAndLoss(batch);
  if (!std::isfinite(loss.loss) || !AllFinite(buffers_.priority)) {
    return trained().Refuse(batch, buffers_.priority, fmt::format("the loss is {}", loss.loss));
  }
  Backward(batch, watch);
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return trained().Refuse(batch, buffers_.priority, fmt::format("the gradient norm is {}", norm));
  }
  // ApplyGradient updates the network's observation statistics with it.
  observation_ = ConstTensor(batch.observation);
  std::ranges::copy(buffers_.priority, priority.begin());
  return LossReport{.loss = loss.loss,
                    .td_error_mean = loss.td_error_mean,
                    .q_mean = loss.q_mean,
                    .gradient_norm = norm,
                    .rows = double(batch.size())};
}

}  // namespace

Status CheckDqn(const TrainingConfig& config, const EnvSpec& env, const Module& network) {
  if (!env.action.discrete() || env.action.count < 1) {
    return InvalidArgument("{}: dqn needs discrete actions, which this environment does not have",
                           env.id);
  }
  if (config.learner.target_update_every_updates < 1) {
    return InvalidArgument("learner.target_update_every_updates is {}, must be at least 1",
                           config.learner.target_update_every_updates);
  }
  TROOP_RETURN_IF_ERROR(CheckValueHead(ModelSetupOf(config)));
  // A plan for one item shows the output's shape.
  const TensorSpec in{env.observation.dtype, env.observation.shape.Prepend(1)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network.MakePlan({&in, 1}));
  const std::int64_t numbers = GetValueHead(ModelSetupOf(config)).numbers;
  if (plan.out.size() != 1 ||
      !(plan.out[0] == TensorSpec{DType::kF32, {1, env.action.count * numbers}})) {
    return InvalidArgument("the network's output is {}, but {} has {} actions with {} values each",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), env.id,
                           env.action.count, numbers);
  }
  return Status::Ok();
}

Result<std::unique_ptr<Algorithm>> MakeDqn(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network, int learner) {
  TROOP_RETURN_IF_ERROR(CheckDqn(config, env, *network));
  TROOP_ASSIGN_OR_RETURN(
      auto trained, TrainState::Make(config, network.get(), "dqn",
                                     {{ParameterCount(*network), config.optimizer.learning_rate}}));
  return std::unique_ptr<Algorithm>(
      new Dqn(config, env, std::move(network), std::move(trained), learner));
}

}  // namespace troop
