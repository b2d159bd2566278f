// Implements sampling and the gradients of policy and temperature of SAC.
#include "learners/rl/soft_policy.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

// The target of the paper (table 1) is -1 per dimension.
double TargetEntropy(const TrainingConfig& config, const PolicyCritic& network) {
  if (config.learner.target_entropy != 0) return config.learner.target_entropy;
  return -double(network.gaussian()->size());
}

}  // namespace

SoftPolicy::SoftPolicy(const TrainingConfig& config, const PolicyCritic* network, int learner)
    : seed_(std::uint64_t(config.seed)),
      learner_(std::uint64_t(learner)),
      learns_temperature_(config.learner.learn_temperature),
      target_entropy_(TargetEntropy(config, *network)),
      network_(network) {}

// Each critic has its own cache: both are evaluated before either backward pass.
Status SoftPolicy::Prepare(const TensorSpec& observation) {
  TROOP_ASSIGN_OR_RETURN(const Plan policy, network_->policy().MakePlan({&observation, 1}));
  const std::int64_t rows = observation.shape[0];
  const auto actions = std::int64_t(network_->gaussian()->size());
  for (Tensor* t : {&head_, &dhead_}) *t = Tensor(DType::kF32, {rows, 2 * actions});
  for (Tensor* t : {&action_, &daction_, &daction_part_}) *t = Tensor(DType::kF32, {rows, actions});
  const std::vector<TensorSpec> judged{observation, action_.spec()};
  TROOP_ASSIGN_OR_RETURN(const Plan critic, network_->critic().MakePlan(judged));
  policy_cache_ = MutableBuffer::Zeros(policy.cache_bytes);
  for (int i = 0; i < 2; ++i) {
    for (Tensor* t : {&q_[i], &dq_[i]}) *t = Tensor(DType::kF32, critic.out[0].shape);
    critic_cache_[i] = MutableBuffer::Zeros(critic.cache_bytes);
  }
  noise_.resize(std::size_t(rows * actions));
  log_probability_.resize(std::size_t(rows));
  dlog_probability_.resize(std::size_t(rows));
  return Status::Ok();
}

// One stream per update and learner, so that a resumed run draws the same actions.
void SoftPolicy::BeginUpdate(std::uint64_t update) {
  rng_ = Rng({.run_seed = seed_,
              .purpose = Purpose::kPolicySampling,
              .index = learner_,
              .episode = update});
}

// Fills head_, noise_ and log_probability_.
void SoftPolicy::Draw(const StepContext& online, const ConstTensor& observation,
                      const Tensor& action, Cache cache) {
  network_->policy().Forward(network_->PolicyContext(online), {&observation, 1}, {&head_, 1},
                             cache);
  for (double& x : noise_) x = rng_.Normal();
  network_->gaussian()->Sample(head_.as<float>(), noise_, action.as<float>(), log_probability_);
}

// No cache: the targets have no gradient.
void SoftPolicy::Sample(const StepContext& online, const ConstTensor& observation,
                        const Tensor& action) {
  Draw(online, observation, action, {});
}

// The parameter is log α, so that α stays positive.
double SoftPolicy::Temperature(const StepContext& online) const {
  return std::exp(double(online.value[std::size_t(network_->temperature_offset())]));
}

// A NaN stays: the update is refused then.
void SoftPolicy::AddEntropy(const StepContext& online, std::span<float> q) const {
  const double alpha = Temperature(online);
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] = float(double(q[i]) - alpha * log_probability_[i]);
}

// The gradient of Σ -w_i min_j Q_j(s, a) / B with respect to the actions, in daction_.
void SoftPolicy::ActionGradient(const StepContext& online, const SampleBatch& batch) {
  const std::vector<ConstTensor> judged{batch.observation, action_};
  for (std::size_t j = 0; j < 2; ++j)
    network_->critic(j).Forward(network_->CriticContext(online, j), judged, {&q_[j], 1},
                                critic_cache_[j].bytes());
  // The gradient flows through the smaller value alone.
  const std::span<const float> first = q_[0].as<float>(), second = q_[1].as<float>();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const float slope = -batch.weight[i] / float(batch.size());
    const bool takes_second = second[i] < first[i];
    dq_[0].as<float>()[i] = takes_second ? 0 : slope;
    dq_[1].as<float>()[i] = takes_second ? slope : 0;
  }
  // Without a gradient buffer the critics only pass the gradient on to the action.
  StepContext without = online;
  without.gradient = {};
  for (std::size_t j = 0; j < 2; ++j) {
    const ConstTensor dq(dq_[j]);
    const std::vector<Tensor> wanted{Tensor(), j == 0 ? daction_ : daction_part_};
    network_->critic(j).Backward(network_->CriticContext(without, j), judged, {&dq, 1},
                                 critic_cache_[j].bytes(), wanted);
  }
  const std::span<float> sum = daction_.as<float>();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += daction_part_.as<float>()[i];
}

// The policy depends on its parameters through the sampled action and through log π.
void SoftPolicy::Backward(const StepContext& context, const SampleBatch& batch) {
  const ConstTensor in(batch.observation);
  Draw(context, in, action_, policy_cache_.bytes());
  ActionGradient(context, batch);
  // Log-probabilities: of the entropy in the policy's loss, and of the temperature's loss.
  const double alpha = Temperature(context), rows = double(batch.size());
  double dtemperature = 0;
  entropy_ = 0;
  for (std::size_t i = 0; i < log_probability_.size(); ++i) {
    const double weight = double(batch.weight[i]) / rows;
    dlog_probability_[i] = weight * alpha;
    dtemperature -= weight * (log_probability_[i] + target_entropy_);
    entropy_ -= log_probability_[i] / rows;
  }
  network_->gaussian()->Backward(head_.as<float>(), noise_,
                                 {daction_.as<float>(), dlog_probability_}, dhead_.as<float>());
  // Mean and deviation back through the layers of the policy.
  const ConstTensor dhead(dhead_);
  network_->policy().Backward(network_->PolicyContext(context), {&in, 1}, {&dhead, 1},
                              policy_cache_.bytes(), {});
  context.gradient[std::size_t(network_->temperature_offset())] =
      learns_temperature_ ? float(dtemperature) : 0.0f;
}

}  // namespace troop
