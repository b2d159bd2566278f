// Implements V-trace and PPO updates on the CPU.
#include "learners/unrolls/actor_critic.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/loss/policy_gradient_loss.h"
#include "kernels/loss/vtrace_return.h"
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
  // Targets and advantages of one unroll's steps, which all epochs of its rollout share.
  struct Targets {
    std::vector<double> target, advantage;  // [length]
  };
  // The log-probability of the action; with a value clip, and for the targets of a rollout, also
  // the value of the actor's network.
  std::int64_t NumbersPerStep() const override { return troop::NumbersPerStep(config().learner); }
  LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) override;
  // The policy's distribution, with the actions of the batch.
  std::unique_ptr<PolicyDistribution> PolicyOf(const SampleBatch& batch) const;

  // Number `number` of each step of a batch, without gaps: [B, S].
  void CopyNumbers(const SampleBatch& batch, std::int64_t number, std::vector<float>* out) const;

  // True for synchronous PPO, whose advantages stay as they are in all epochs.
  bool KeepsTargets() const {
    return config().learner.algorithm == AlgorithmKind::kPpo && config().learner.synchronous;
  }
  // Sets target_ and advantage_ for a batch with these outputs.
  void SetTargets(const SampleBatch& batch, const Outputs& outputs);
  Targets TargetsOf(const SampleBatch& batch, std::int64_t row, double last_value) const;

  std::vector<float> log_mu_, mu_value_;    // [B, S]
  std::vector<double> target_, advantage_;  // [B, S], with KeepsTargets
  // The unrolls of the newest rollout, by the fields of their keys.
  std::map<std::array<std::uint32_t, 3>, Targets> kept_;
  std::uint64_t rollout_version_ = 0;
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

// GAE(λ) of the values of the network that acted: at the time of the rollout both policies are
// equal, so that it is V-trace with ratios of 1.
ActorCritic::Targets ActorCritic::TargetsOf(const SampleBatch& batch, std::int64_t row,
                                            double last_value) const {
  const LearnerConfig& l = config().learner;
  const std::int32_t length = batch.length[std::size_t(row)];
  const std::int64_t first = row * batch.reward.dim(1);
  std::vector<double> value(mu_value_.begin() + first, mu_value_.begin() + first + length);
  value.push_back(last_value);
  const std::vector<double> ratio(std::size_t(length), 1.0);
  Targets made{std::vector<double>(std::size_t(length)), std::vector<double>(std::size_t(length))};
  VtraceReturns({.length = length,
                 .reward = batch.reward.data<float>() + first,
                 .discount = batch.discount.data<float>() + first,
                 .value = value.data(),
                 .ratio = ratio.data(),
                 .gamma = l.gamma,
                 .reward_clip = config().reward_clip,
                 .lambda = l.lambda},
                made.target.data(), made.advantage.data());
  for (std::size_t t = 0; t < std::size_t(length); ++t)
    made.advantage[t] = made.target[t] - value[t];
  return made;
}

// Schulman et al. 2017, algorithm 1, computes the advantages once per rollout, before its epochs:
// with advantages of the newest values, later epochs would correct for what the earlier ones have
// learned. The value after the last step is not known to the actor; it is that of the learner's
// weights at the first use of the unroll.
void ActorCritic::SetTargets(const SampleBatch& batch, const Outputs& outputs) {
  const std::int64_t steps = batch.reward.dim(1), width = ActorCriticColumns(env().action);
  target_.assign(std::size_t(batch.size() * steps), 0.0);
  advantage_.assign(target_.size(), 0.0);
  std::int64_t frame = 0;  // after the row's last step
  for (std::size_t row = 0; row < std::size_t(batch.size()); ++row) {
    if (batch.policy_version[row] > rollout_version_) {
      rollout_version_ = batch.policy_version[row];
      kept_.clear();
    }
    frame += batch.length[row];
    const ItemKey& key = batch.key[row];
    const auto [it, added] = kept_.try_emplace({key.slot, key.generation, key.shard});
    if (added) {
      const double last = outputs.out[(frame + 1) * width - 1];
      it->second = TargetsOf(batch, std::int64_t(row), last);
    }
    const auto to = std::ptrdiff_t(row) * std::ptrdiff_t(steps);
    std::ranges::copy(it->second.target, target_.begin() + to);
    std::ranges::copy(it->second.advantage, advantage_.begin() + to);
    ++frame;
  }
}

// The report's value is the mean V, its error the mean |v_t - V_t|.
LossReport ActorCritic::ComputeLoss(const SampleBatch& batch, const Outputs& outputs) {
  const LearnerConfig& l = config().learner;
  const bool ppo = l.algorithm == AlgorithmKind::kPpo;
  CopyNumbers(batch, 0, &log_mu_);
  if (NumbersPerStep() > 1) CopyNumbers(batch, 1, &mu_value_);
  if (KeepsTargets()) SetTargets(batch, outputs);
  const std::unique_ptr<PolicyDistribution> policy = PolicyOf(batch);
  const PolicyGradientSummary loss =
      PolicyGradientLoss({.batch = batch.size(),
                          .steps = batch.reward.dim(1),
                          .policy = policy.get(),
                          .out = outputs.out,
                          .log_mu = log_mu_.data(),
                          .mu_value = mu_value_.data(),
                          .target = KeepsTargets() ? target_.data() : nullptr,
                          .advantage = KeepsTargets() ? advantage_.data() : nullptr,
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
