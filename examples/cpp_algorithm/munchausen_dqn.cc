// Implements Munchausen DQN. TrainState has the weights, the target network and the optimizer; only
// the loss is written here.
#include "munchausen_dqn.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "learners/rl/transition_check.h"
#include "learners/train_state.h"
#include "nn/models/model.h"

namespace {

struct Options {
  double temperature = 0.03, munchausen = 0.9, clip = -1;
};

// τ ln Σ_a exp(q_a / τ): the soft maximum of q [A], without overflow.
double SoftMaximum(const float* q, std::int64_t actions, double temperature) {
  const double largest = *std::max_element(q, q + actions);
  double sum = 0;
  for (std::int64_t a = 0; a < actions; ++a) sum += std::exp((q[a] - largest) / temperature);
  return largest + temperature * std::log(sum);
}

class MunchausenDqn final : public troop::Algorithm, public troop::ExternalOptimizer {
 public:
  MunchausenDqn(troop::OwnAlgorithmRequest request, Options options,
                std::unique_ptr<troop::TrainState> trained)
      : config_(request.config),
        env_(request.env),
        options_(options),
        network_(std::move(request.network)),
        trained_(std::move(trained)) {}

  troop::Result<troop::LossReport> ComputeGradient(const troop::SampleBatch& batch,
                                                   std::span<float> priority,
                                                   troop::GradientWatch* watch) override;
  void ApplyGradient(double progress, double norm) override {
    trained_->Step(progress, norm, observation_);
  }

  // Several learners, parameter shards and checkpoints use these; TrainState implements them.
  std::span<float> gradient() override { return trained_->gradient(); }
  float LearningRate(double progress) const override { return trained_->LearningRate(progress); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  troop::TensorFile State() const override { return trained_->State(); }
  troop::Status SetState(const troop::TensorFile& state) override {
    return trained_->SetState(state);
  }
  troop::Status RollBack(const troop::TensorFile& state) override {
    return trained_->RollBack(state);
  }
  troop::Status CheckFinite() const override { return trained_->CheckFinite(); }
  troop::ExternalOptimizer* external_optimizer() override { return this; }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override {
    trained_->Adopt(updates, value);
  }
  troop::Optimizer& optimizer() override { return trained_->optimizer(); }
  double ClipScale(double norm) const override { return trained_->ClipScale(norm); }

 private:
  troop::Status Prepare(std::int64_t batch);
  void Evaluate(bool target, const troop::Tensor& observation, const troop::Tensor& q, bool keep);
  troop::LossReport Loss(const troop::SampleBatch& batch);

  const troop::TrainingConfig config_;
  const troop::EnvSpec env_;
  const Options options_;
  const std::unique_ptr<troop::Module> network_;
  const std::unique_ptr<troop::TrainState> trained_;
  // Buffers of one batch size, and the input of the last gradient.
  troop::Tensor q_, q_target_, q_next_, dq_;  // [B, A]
  troop::MutableBuffer cache_, workspace_;
  std::vector<float> priority_;  // [B]
  troop::ConstTensor observation_;
};

// Allocates the buffers when the batch size changes.
troop::Status MunchausenDqn::Prepare(std::int64_t batch) {
  if (std::int64_t(priority_.size()) == batch) return troop::Status::Ok();
  const troop::TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const troop::Plan plan, network_->MakePlan({&in, 1}));
  for (troop::Tensor* q : {&q_, &q_target_, &q_next_, &dq_})
    *q = troop::Tensor(troop::DType::kF32, {batch, env_.action.count});
  cache_ = troop::MutableBuffer::Zeros(plan.cache_bytes);
  workspace_ = troop::MutableBuffer::Zeros(plan.workspace_bytes);
  priority_.resize(std::size_t(batch));
  return troop::Status::Ok();
}

// One forward pass; keep: with the activations that Backward needs.
void MunchausenDqn::Evaluate(bool target, const troop::Tensor& observation, const troop::Tensor& q,
                             bool keep) {
  const troop::StepContext context{target ? trained_->target() : trained_->value(),
                                   target ? trained_->packed_target() : trained_->packed_value(),
                                   {},
                                   workspace_.bytes()};
  const troop::ConstTensor in(observation);
  network_->Forward(context, {&in, 1}, {&q, 1}, keep ? cache_.bytes() : troop::Cache{});
}

// Vieillard et al. 2020, eq. 1, with importance weights; fills dq_ and priority_.
troop::LossReport MunchausenDqn::Loss(const troop::SampleBatch& batch) {
  const std::int64_t actions = env_.action.count, size = batch.size();
  const std::int64_t steps = batch.reward.dim(1);  // rewards per item, of which the first counts
  const double tau = options_.temperature, clip = config_.reward_clip;
  troop::LossReport report{.rows = double(size)};
  float* const dq = dq_.as<float>().data();
  std::fill_n(dq, size * actions, 0.0f);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int32_t action = batch.action.as<std::int32_t>()[std::size_t(i)];
    const float* const before = q_target_.as<float>().data() + i * actions;
    const float* const after = q_next_.as<float>().data() + i * actions;
    double reward = batch.reward.as<float>()[std::size_t(i * steps)];
    if (clip > 0) reward = std::clamp(reward, -clip, clip);
    // τ ln π(a|s) = q(s, a) - soft maximum of q(s, ·).
    const double log_policy = before[action] - SoftMaximum(before, actions, tau);
    double target = reward + options_.munchausen * std::clamp(log_policy, options_.clip, 0.0);
    // The policy's entropy and mean together are the soft maximum. An episode's end has no value.
    const double discount = batch.discount.as<float>()[std::size_t(i * steps)];
    if (discount != 0)
      target += config_.learner.gamma * discount * SoftMaximum(after, actions, tau);
    const double q = q_.as<float>()[std::size_t(i * actions + action)], td = target - q;
    const bool linear = config_.learner.loss == troop::TdLoss::kHuber && std::abs(td) > 1;
    const double weight = batch.weight[std::size_t(i)];
    report.loss += weight * (linear ? std::abs(td) - 0.5 : 0.5 * td * td) / double(size);
    report.td_error_mean += std::abs(td) / double(size);
    report.q_mean += q / double(size);
    dq[i * actions + action] =
        float(-weight * (linear ? std::copysign(1.0, td) : td) / double(size));
    priority_[std::size_t(i)] = float(std::abs(td));
  }
  return report;
}

// Steps: validate, forward, loss, backward. A result that is not finite rejects the batch.
troop::Result<troop::LossReport> MunchausenDqn::ComputeGradient(const troop::SampleBatch& batch,
                                                                std::span<float> priority,
                                                                troop::GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(troop::CheckTransitions(batch, env_, priority.size()));
  TROOP_RETURN_IF_ERROR(Prepare(batch.size()));
  Evaluate(true, batch.observation, q_target_, false);
  Evaluate(true, batch.next_observation, q_next_, false);
  Evaluate(false, batch.observation, q_, true);
  troop::LossReport report = Loss(batch);
  if (!std::isfinite(report.loss))
    return trained_->Refuse(batch, priority_, fmt::format("the loss is {}", report.loss));
  const troop::StepContext context{.value = trained_->value(),
                                   .packed = trained_->packed_value(),
                                   .gradient = trained_->gradient(),
                                   .workspace = workspace_.bytes(),
                                   .accumulate = false,
                                   .watch = watch};
  const troop::ConstTensor in(batch.observation), dout(dq_);
  const troop::Tensor din;
  network_->Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&din, 1});
  report.gradient_norm = GradientNorm();
  if (!std::isfinite(report.gradient_norm)) {
    return trained_->Refuse(batch, priority_,
                            fmt::format("the gradient norm is {}", report.gradient_norm));
  }
  observation_ = in;
  std::ranges::copy(priority_, priority.begin());
  return report;
}

}  // namespace

troop::Result<std::unique_ptr<troop::Algorithm>> MakeMunchausenDqn(
    troop::OwnAlgorithmRequest request) {
  const troop::TrainingConfig& config = request.config;
  Options options;
  options.temperature = request.options.Number("temperature", 0.03, troop::Above(0));
  options.munchausen = request.options.Number("munchausen", 0.9, troop::Between(0, 1));
  options.clip = request.options.Number("clip", -1, {.high = 0});
  if (!request.env.action.discrete())
    return troop::InvalidArgument("needs discrete actions; choose another env.id");
  if (config.n_step != 1)
    return troop::InvalidArgument("actor.n_step is {}, must be 1; set it", config.n_step);
  if (config.learner.critic != troop::CriticKind::kScalar)
    return troop::InvalidArgument("learner.critic must be \"scalar\"; set it");
  TROOP_ASSIGN_OR_RETURN(auto trained,
                         troop::TrainState::Make(config, request.network.get(), "munchausen_dqn",
                                                 {{troop::ParameterCount(*request.network),
                                                   config.optimizer.learning_rate}}));
  return std::unique_ptr<troop::Algorithm>(
      new MunchausenDqn(std::move(request), options, std::move(trained)));
}
