// Implements DPG, TD3 and SAC updates on the CPU.

#include "learners/rl/dpg.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/philox.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/rl/soft_policy.h"
#include "learners/rl/td_loss.h"
#include "learners/rl/trained_algorithm.h"
#include "learners/rl/transition_check.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Buffers that depend on the batch size.
struct BatchBuffers {
  std::int64_t batch = -1;
  Tensor action, next_action;  // [B, A] of the policy, and of the target policy
  Tensor q, q_next, dq;        // [B, outputs]
  Tensor q_twin;               // [B, outputs] of the second target critic
  MutableBuffer cache, workspace;
  std::vector<float> priority;            // [B]
  std::vector<float> priority_of_critic;  // [B]
  std::vector<std::int32_t> only_action;  // [B], all 0: the critic has one action
};

// Updates per update of the policy.
std::int64_t PolicyDelay(const TrainingConfig& config) {
  return config.learner.algorithm == AlgorithmKind::kTd3 ? config.learner.policy_delay : 1;
}

// Network passes and losses; weights and optimizer state are in TrainState.
class Dpg final : public TrainedAlgorithm {
 public:
  Dpg(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<PolicyCritic> network,
      std::unique_ptr<TrainState> trained, int learner)
      : TrainedAlgorithm(std::move(network), std::move(trained)),
        config_(config),
        env_(env),
        both_(static_cast<const PolicyCritic*>(&this->network())),
        twin_(both_->critics() == 2),
        learner_(std::uint64_t(learner)),
        form_(GetValueHead(ModelSetupOf(config))) {
    if (both_->gaussian() != nullptr) soft_ = std::make_unique<SoftPolicy>(config, both_, learner);
  }

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  double GradientNorm() override;
  void ApplyGradient(double progress, double norm) override {
    trained().Step(progress, norm, observation_);
  }

 private:
  Status PrepareBuffers(std::int64_t batch);
  StepContext Online(bool with_gradient);
  void TargetValues(const SampleBatch& batch);
  void SmoothTargetActions();
  DqnLossSummary CriticLoss(const SampleBatch& batch, std::size_t critic);
  void CriticBackward(const SampleBatch& batch, std::size_t critic);
  Result<DqnLossSummary> LearnCritics(const SampleBatch& batch);
  void PolicyGradient(const SampleBatch& batch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const PolicyCritic* const both_;  // network()
  const bool twin_;                 // TD3, SAC
  const std::uint64_t learner_;
  const ValueHead form_;
  std::unique_ptr<SoftPolicy> soft_;  // SAC
  BatchBuffers buffers_;
  ConstTensor observation_;  // input of the last ComputeGradient
};

// Allocates the buffers for a batch size; no allocation while it stays the same.
Status Dpg::PrepareBuffers(std::int64_t batch) {
  if (buffers_.batch == batch) return Status::Ok();
  const TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, both_->MakePlan({&in, 1}));
  if (soft_ != nullptr) TROOP_RETURN_IF_ERROR(soft_->Prepare(in));
  BatchBuffers b;
  for (Tensor* t : {&b.action, &b.next_action}) *t = Tensor(DType::kF32, plan.out[0].shape);
  for (Tensor* t : {&b.q, &b.q_next, &b.dq, &b.q_twin}) *t = Tensor(DType::kF32, plan.out[1].shape);
  b.cache = MutableBuffer::Zeros(plan.cache_bytes);
  b.workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  b.priority.resize(std::size_t(batch));
  b.priority_of_critic.resize(std::size_t(batch));
  b.only_action.resize(std::size_t(batch));
  b.batch = batch;
  buffers_ = std::move(b);
  return Status::Ok();
}

// Context of the online network. with_gradient: for a backward pass.
StepContext Dpg::Online(bool with_gradient) {
  return {.value = trained().value(),
          .packed = trained().packed_value(),
          .gradient = with_gradient ? trained().gradient() : std::span<float>(),
          .workspace = buffers_.workspace.bytes(),
          .accumulate = false};
}

// Adds clipped noise to the target policy's actions, keyed by the update.
void Dpg::SmoothTargetActions() {
  Rng rng({.run_seed = std::uint64_t(config_.seed),
           .purpose = Purpose::kTargetNoise,
           .index = learner_,
           .episode = trained().updates()});
  const double sigma = config_.learner.target_policy_noise,
               clip = config_.learner.target_noise_clip;
  const std::span<float> action = buffers_.next_action.as<float>();
  const std::size_t size = env_.action.low.size();
  for (std::size_t i = 0; i < action.size(); ++i) {
    const float low = env_.action.low[i % size], high = env_.action.high[i % size];
    // Halves are subtracted, so that the range does not overflow.
    const double half = 0.5 * double(high) - 0.5 * double(low);
    const double noise = half * std::clamp(sigma * rng.Normal(), -clip, clip);
    action[i] = std::clamp(float(double(action[i]) + noise), low, high);  // NaN passes
  }
}

// Values of the last observations by the target networks: Q'(s_n, μ'(s_n)), or the minimum of twin
// critics; SAC adds the entropy.
void Dpg::TargetValues(const SampleBatch& batch) {
  BatchBuffers& b = buffers_;
  StepContext target = Online(false);
  target.value = trained().target();
  target.packed = trained().packed_target();
  const ConstTensor next(batch.next_observation);
  if (!twin_) {  // one pass through target policy and target critic
    const std::vector<Tensor> expected{b.next_action, b.q_next};
    return both_->Forward(target, {&next, 1}, expected, {});
  }
  if (soft_ != nullptr) {
    soft_->BeginUpdate(trained().updates());
    soft_->Sample(Online(false), next, b.next_action);
  } else {
    both_->policy().Forward(both_->PolicyContext(target), {&next, 1}, {&b.next_action, 1}, {});
    SmoothTargetActions();
  }
  // Both critics judge the same actions.
  const std::vector<ConstTensor> judged{next, b.next_action};
  both_->critic(0).Forward(both_->CriticContext(target, 0), judged, {&b.q_next, 1}, {});
  both_->critic(1).Forward(both_->CriticContext(target, 1), judged, {&b.q_twin, 1}, {});
  const std::span<float> q = b.q_next.as<float>();
  const std::span<const float> other = b.q_twin.as<float>();
  // A NaN of either critic stays: the update is refused then.
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] = q[i] > other[i] || std::isnan(other[i]) ? other[i] : q[i];
  if (soft_ != nullptr) soft_->AddEntropy(Online(false), q);
}

// The loss of Q(s, a) of a critic against the target values.
DqnLossSummary Dpg::CriticLoss(const SampleBatch& batch, std::size_t critic) {
  BatchBuffers& b = buffers_;
  const std::vector<ConstTensor> done{batch.observation, batch.action};
  both_->critic(critic).Forward(both_->CriticContext(Online(false), critic), done, {&b.q, 1},
                                b.cache.bytes());
  return TdLoss(config_, form_, batch,
                {.first = b.q.data<float>(),
                 .last_target = b.q_next.data<float>(),
                 .action = b.only_action.data()},
                {b.dq.data<float>(), b.priority_of_critic.data()});
}

// Writes the critic's part of the gradient.
void Dpg::CriticBackward(const SampleBatch& batch, std::size_t critic) {
  const std::vector<ConstTensor> done{batch.observation, batch.action};
  const ConstTensor dq(buffers_.dq);
  both_->critic(critic).Backward(both_->CriticContext(Online(true), critic), done, {&dq, 1},
                                 buffers_.cache.bytes(), {});
}

// Loss and gradient of all critics: the sum of the losses, q of the first, the mean of the others.
Result<DqnLossSummary> Dpg::LearnCritics(const SampleBatch& batch) {
  BatchBuffers& b = buffers_;
  TargetValues(batch);
  DqnLossSummary all;
  const std::size_t critics = both_->critics();
  std::ranges::fill(b.priority, 0.0f);
  for (std::size_t critic = 0; critic < critics; ++critic) {
    const DqnLossSummary loss = CriticLoss(batch, critic);
    if (!std::isfinite(loss.loss) || !AllFinite(b.priority_of_critic)) {
      return trained().Refuse(batch, b.priority_of_critic,
                              fmt::format("the loss is {}", loss.loss));
    }
    CriticBackward(batch, critic);
    // The sum is that of the paper; the other values are metrics.
    if (critic == 0) all.q_mean = loss.q_mean;
    all.loss += loss.loss;
    all.td_error_mean += loss.td_error_mean / double(critics);
    for (std::size_t i = 0; i < b.priority.size(); ++i)
      b.priority[i] += b.priority_of_critic[i] / float(critics);
  }
  return all;
}

// Deterministic policy gradient: the loss is the mean of -Q(s, μ(s)). SAC has its own.
void Dpg::PolicyGradient(const SampleBatch& batch) {
  if (soft_ != nullptr) return soft_->Backward(Online(true), batch);
  BatchBuffers& b = buffers_;
  const ConstTensor in(batch.observation);
  const std::vector<Tensor> out{b.action, b.q};
  // A new forward pass, because the critic's input is now μ(s).
  both_->Forward(Online(false), {&in, 1}, out, b.cache.bytes());
  const double scale = -1.0 / double(batch.size());
  ExpectedValueGradient(form_, b.q.as<float>(), scale, b.dq.as<float>());
  // The critic receives no gradient here: only the policy's parameters are written.
  const std::vector<ConstTensor> dout{ConstTensor(), b.dq};
  both_->Backward(Online(true), {&in, 1}, dout, b.cache.bytes(), {});
}

// Leaves out SAC's temperature, whose gradient is an entropy and has another scale than those of
// the networks. Not finite if any gradient is not.
double Dpg::GradientNorm() {
  if (soft_ == nullptr) return Algorithm::GradientNorm();
  float& temperature = trained().gradient()[std::size_t(both_->temperature_offset())];
  const float kept = std::exchange(temperature, 0.0f);
  const double norm = Algorithm::GradientNorm();
  temperature = kept;
  return std::isfinite(kept) ? norm : double(kept);
}

// Steps: losses and gradients of the critics, policy gradient (at the same weights), norm.
Result<LossReport> Dpg::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                        GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priority.size()));
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  TROOP_ASSIGN_OR_RETURN(const DqnLossSummary loss, LearnCritics(batch));
  // The critics' parameters follow the policy's in the layout, so they are final first.
  const std::int64_t critics_begin = both_->critic_offset();
  if (watch != nullptr) watch->GradientReady(critics_begin);
  if (trained().optimizer().ChangesNext(PolicyDelay(config_))) {
    PolicyGradient(batch);
  } else {
    std::ranges::fill(trained().gradient().first(std::size_t(critics_begin)), 0.0f);
  }
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) trained().gradient()[0] = *bad;
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return trained().Refuse(batch, buffers_.priority, fmt::format("the gradient norm is {}", norm));
  }
  observation_ = ConstTensor(batch.observation);
  std::ranges::copy(buffers_.priority, priority.begin());
  LossReport report{.loss = loss.loss,
                    .td_error_mean = loss.td_error_mean,
                    .q_mean = loss.q_mean,
                    .gradient_norm = norm,
                    .rows = double(batch.size())};
  if (soft_ != nullptr) {
    report.entropy = soft_->entropy();
    report.temperature = soft_->Temperature(Online(false));
  }
  return report;
}

// Settings that MakePolicyCritic does not check. ParseConfig rejects them earlier, with their line.
Status CheckConfig(const TrainingConfig& config, const EnvSpec& env) {
  const LearnerConfig& l = config.learner;
  if (env.action.discrete()) {
    return InvalidArgument("{}: {} needs continuous actions, which this environment does not have",
                           env.id, EnumName(l.algorithm));
  }
  TROOP_RETURN_IF_ERROR(CheckValueHead(ModelSetupOf(config)));
  if (l.target_update_every_updates < 1 || l.policy_delay < 1) {
    return InvalidArgument(
        "learner.target_update_every_updates is {} and learner.policy_delay {}, must be at least 1",
        l.target_update_every_updates, l.policy_delay);
  }
  // A minimum of two distributions is not defined.
  if (HasTwinCritics(l.algorithm) && l.critic != CriticKind::kScalar) {
    return InvalidArgument("learner.critic is \"{}\", but {} needs \"scalar\"", EnumName(l.critic),
                           EnumName(l.algorithm));
  }
  if (!(l.initial_temperature > 0)) {
    return InvalidArgument("learner.initial_temperature is {}, must be above 0",
                           l.initial_temperature);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeDpg(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<PolicyCritic> network, int learner) {
  TROOP_RETURN_IF_ERROR(CheckConfig(config, env));
  // Parameter groups: the policy, SAC's temperature, then the critics, which share one learning
  // rate. Twin critics differ by their initial weights alone.
  const double rate = config.optimizer.learning_rate;
  const double policy = config.optimizer.policy_learning_rate;
  // Weight decay would pull a temperature toward 1.
  const bool soft = network->gaussian() != nullptr;
  std::vector<TrainState::Group> groups{
      {.end = soft ? network->temperature_offset() : network->critic_offset(),
       .learning_rate = policy > 0 ? policy : rate,
       .every = PolicyDelay(config)}};
  if (soft) {
    groups.push_back(
        {.end = network->critic_offset(), .learning_rate = rate, .decays = false, .clips = false});
  }
  groups.push_back({ParameterCount(*network), rate});
  TROOP_ASSIGN_OR_RETURN(
      auto trained,
      TrainState::Make(config, network.get(), std::string(EnumName(config.learner.algorithm)),
                       std::move(groups)));
  return std::unique_ptr<Algorithm>(
      new Dpg(config, env, std::move(network), std::move(trained), learner));
}

}  // namespace troop
