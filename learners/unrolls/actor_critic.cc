// Implements V-trace and PPO updates on the CPU.
#include "learners/unrolls/actor_critic.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/loss/policy_gradient_loss.h"
#include "learners/unrolls/unroll_algorithm.h"
#include "nn/models/actor_critic_network.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Outputs: the policy and the value of the frames, [F, ActorCriticColumns].
class ActorCritic final : public UnrollAlgorithm {
 public:
  ActorCritic(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
              std::unique_ptr<TrainState> trained)
      : UnrollAlgorithm(config, env, ActorCriticColumns(env.action), std::move(network),
                        std::move(trained)) {}

 private:
  // The log-probability of the action; with a value clip also the value of the actor's network.
  std::int64_t NumbersPerStep() const override {
    return troop::NumbersPerStep(config().learner.algorithm, config().learner.value_clip);
  }
  LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) override;
  // The policy's distribution, with the actions of the batch.
  std::unique_ptr<PolicyDistribution> PolicyOf(const SampleBatch& batch) const;

  // Number `number` of each step of a batch, without gaps: [B, S].
  void CopyNumbers(const SampleBatch& batch, std::int64_t number, std::vector<float>* out) const;

  std::vector<float> log_mu_, mu_value_;  // [B, S]
};

// Refers to the actions of the batch, which outlives it.
std::unique_ptr<PolicyDistribution> ActorCritic::PolicyOf(const SampleBatch& batch) const {
  const ActionSpec& spec = env().action;
  if (spec.discrete())
    return std::make_unique<CategoricalDistribution>(spec.count, batch.action.data<std::int32_t>());
  // Actions are stored as f32, also those of integers.
  if (spec.integers) {
    return std::make_unique<MultiCategoricalDistribution>(spec.low, spec.high,
                                                          batch.action.data<float>());
  }
  return std::make_unique<GaussianDistribution>(spec.low, spec.high, batch.action.data<float>());
}

// They follow the recurrent state in the rows of batch.state.
void ActorCritic::CopyNumbers(const SampleBatch& batch, std::int64_t number,
                              std::vector<float>* out) const {
  const std::int64_t steps = batch.reward.dim(1), first = state_columns() + number * steps;
  const auto width = std::size_t(batch.state.dim(1));
  out->resize(std::size_t(batch.size() * steps));
  for (std::size_t i = 0; i < std::size_t(batch.size()); ++i) {
    const auto row = batch.state.as<float>().subspan(i * width + std::size_t(first));
    std::ranges::copy(row.first(std::size_t(steps)),
                      out->begin() + std::ptrdiff_t(i) * std::ptrdiff_t(steps));
  }
}

// The report's value is the mean V, its error the mean |v_t - V_t|.
LossReport ActorCritic::ComputeLoss(const SampleBatch& batch, const Outputs& outputs) {
  const LearnerConfig& l = config().learner;
  const bool ppo = l.algorithm == AlgorithmKind::kPpo;
  CopyNumbers(batch, 0, &log_mu_);
  if (NumbersPerStep() > 1) CopyNumbers(batch, 1, &mu_value_);
  const std::unique_ptr<PolicyDistribution> policy = PolicyOf(batch);
  const PolicyGradientSummary loss =
      PolicyGradientLoss({.batch = batch.size(),
                          .steps = batch.reward.dim(1),
                          .policy = policy.get(),
                          .out = outputs.out,
                          .log_mu = log_mu_.data(),
                          .mu_value = mu_value_.data(),
                          .reward = batch.reward.data<float>(),
                          .discount = batch.discount.data<float>(),
                          .length = batch.length.data(),
                          .weight = batch.weight.data(),
                          .gamma = l.gamma,
                          .reward_clip = config().reward_clip,
                          .lambda = l.lambda,
                          .rho_bar = l.rho_bar,
                          .c_bar = l.c_bar,
                          .value_cost = l.value_cost,
                          .entropy_cost = l.entropy_cost,
                          .ratio_clip = ppo ? l.ratio_clip : 0,
                          .normalize_advantages = ppo && l.normalize_advantages,
                          .value_clip = l.value_clip,
                          .target_kl = l.target_kl},
                         {outputs.dout, outputs.priority});
  return {.loss = loss.loss,
          .td_error_mean = loss.error_mean,
          .q_mean = loss.value_mean,
          .entropy = loss.entropy,
          .policy_loss = loss.policy_loss,
          .value_loss = loss.value_loss,
          .divergence = loss.divergence,
          .clipped = loss.clipped,
          .stopped = loss.stopped ? 1.0 : 0.0};
}

}  // namespace

// A plan for one frame shows the output's shape.
Result<std::unique_ptr<Algorithm>> MakeActorCritic(const TrainingConfig& config, const EnvSpec& env,
                                                   std::unique_ptr<Module> network) {
  const TensorSpec in{env.observation.dtype, env.observation.shape.Prepend(1)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network->MakePlan({&in, 1}));
  const TensorSpec want{DType::kF32, {1, ActorCriticColumns(env.action)}};
  if (plan.out.size() != 1 || !(plan.out[0] == want)) {
    return InvalidArgument("the network's output is {}, must be {}",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), want.ToString());
  }
  TROOP_ASSIGN_OR_RETURN(
      auto trained,
      TrainState::Make(config, network.get(), std::string(EnumName(config.learner.algorithm)),
                       {{ParameterCount(*network), config.optimizer.learning_rate}},
                       TrainState::Target::kNone));
  return std::unique_ptr<Algorithm>(
      new ActorCritic(config, env, std::move(network), std::move(trained)));
}

}  // namespace troop
