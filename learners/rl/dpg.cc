// Implements DPG updates on the CPU.

#include "learners/rl/dpg.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/failpoint.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/rl/td_loss.h"
#include "learners/rl/transition_check.h"
#include "learners/train_state.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Buffers that depend on the batch size.
struct BatchBuffers {
  std::int64_t batch = -1;
  Tensor action, next_action;  // [B, A] of the policy, and of the target policy
  Tensor q, q_next, dq;        // [B, outputs]
  MutableBuffer cache, workspace;
  std::vector<float> priority;            // [B]
  std::vector<std::int32_t> only_action;  // [B], all 0: the critic has one action
};

// Network passes and losses; weights and optimizer state are in TrainState.
class Dpg final : public Algorithm, public ExternalOptimizer {
 public:
  Dpg(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<PolicyCritic> network,
      std::unique_ptr<TrainState> trained)
      : config_(config),
        env_(env),
        network_(std::move(network)),
        form_(GetValueHead(ModelSetupOf(config))),
        trained_(std::move(trained)) {}

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  std::span<float> gradient() override { return trained_->gradient(); }
  void ApplyGradient(double progress, double norm) override {
    trained_->Step(progress, norm, observation_);
  }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override {
    trained_->Adopt(updates, value);
  }
  ExternalOptimizer* external_optimizer() override { return this; }
  // These forward to TrainState.
  Optimizer& optimizer() override { return trained_->optimizer(); }
  double ClipScale(double norm) const override { return trained_->ClipScale(norm); }
  float LearningRate(double progress) const override { return trained_->LearningRate(progress); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) override { return trained_->RollBack(state); }
  Status CheckFinite() const override { return trained_->CheckFinite(); }

 private:
  Status PrepareBuffers(std::int64_t batch);
  StepContext Online(bool with_gradient);
  DqnLossSummary CriticLoss(const SampleBatch& batch);
  void CriticBackward(const SampleBatch& batch);
  void PolicyGradient(const SampleBatch& batch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::unique_ptr<PolicyCritic> network_;
  const ValueHead form_;
  const std::unique_ptr<TrainState> trained_;
  BatchBuffers buffers_;
  ConstTensor observation_;  // input of the last ComputeGradient
};

// Allocates the buffers for a batch size; no allocation while it stays the same.
Status Dpg::PrepareBuffers(std::int64_t batch) {
  if (buffers_.batch == batch) return Status::Ok();
  const TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network_->MakePlan({&in, 1}));
  BatchBuffers b;
  for (Tensor* t : {&b.action, &b.next_action}) *t = Tensor(DType::kF32, plan.out[0].shape);
  for (Tensor* t : {&b.q, &b.q_next, &b.dq}) *t = Tensor(DType::kF32, plan.out[1].shape);
  b.cache = MutableBuffer::Zeros(plan.cache_bytes);
  b.workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  b.priority.resize(std::size_t(batch));
  b.only_action.resize(std::size_t(batch));
  b.batch = batch;
  buffers_ = std::move(b);
  return Status::Ok();
}

// Context of the online network. with_gradient: for a backward pass.
StepContext Dpg::Online(bool with_gradient) {
  return {.value = trained_->value(),
          .packed = trained_->packed_value(),
          .gradient = with_gradient ? trained_->gradient() : std::span<float>(),
          .workspace = buffers_.workspace.bytes(),
          .accumulate = false};
}

// The n-step target from the target policy and critic, and the loss of Q(s, a) against it.
DqnLossSummary Dpg::CriticLoss(const SampleBatch& batch) {
  BatchBuffers& b = buffers_;
  StepContext target = Online(false);
  target.value = trained_->target();
  target.packed = trained_->packed_target();
  const ConstTensor next(batch.next_observation);
  // One pass through target policy and target critic: Q'(s_n, μ'(s_n)).
  const std::vector<Tensor> expected{b.next_action, b.q_next};
  network_->Forward(target, {&next, 1}, expected, {});
  const std::vector<ConstTensor> done{batch.observation, batch.action};
  network_->critic().Forward(network_->CriticContext(Online(false)), done, {&b.q, 1},
                             b.cache.bytes());
  return TdLoss(config_, form_, batch,
                {.first = b.q.data<float>(),
                 .last_target = b.q_next.data<float>(),
                 .action = b.only_action.data()},
                {b.dq.data<float>(), b.priority.data()});
}

// Writes the critic's part of the gradient.
void Dpg::CriticBackward(const SampleBatch& batch) {
  const std::vector<ConstTensor> done{batch.observation, batch.action};
  const ConstTensor dq(buffers_.dq);
  network_->critic().Backward(network_->CriticContext(Online(true)), done, {&dq, 1},
                              buffers_.cache.bytes(), {});
}

// Deterministic policy gradient: the loss is the mean of -Q(s, μ(s)).
void Dpg::PolicyGradient(const SampleBatch& batch) {
  BatchBuffers& b = buffers_;
  const ConstTensor in(batch.observation);
  const std::vector<Tensor> out{b.action, b.q};
  // A new forward pass, because the critic's input is now μ(s).
  network_->Forward(Online(false), {&in, 1}, out, b.cache.bytes());
  const double scale = -1.0 / double(batch.size());
  ExpectedValueGradient(form_, b.q.as<float>(), scale, b.dq.as<float>());
  // The critic receives no gradient here: only the policy's parameters are written.
  const std::vector<ConstTensor> dout{ConstTensor(), b.dq};
  network_->Backward(Online(true), {&in, 1}, dout, b.cache.bytes(), {});
}

// Steps: critic loss, critic gradient, policy gradient (at the same weights), norm.
Result<LossReport> Dpg::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                        GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priority.size()));
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  const DqnLossSummary loss = CriticLoss(batch);
  if (!std::isfinite(loss.loss) || !AllFinite(buffers_.priority)) {
    return trained_->Refuse(batch, buffers_.priority, fmt::format("the loss is {}", loss.loss));
  }
  CriticBackward(batch);
  // The critic's parameters follow the policy's in the layout, so they are final first.
  if (watch != nullptr) watch->GradientReady(network_->critic_offset());
  PolicyGradient(batch);
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) trained_->gradient()[0] = *bad;
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return trained_->Refuse(batch, buffers_.priority, fmt::format("the gradient norm is {}", norm));
  }
  observation_ = ConstTensor(batch.observation);
  std::ranges::copy(buffers_.priority, priority.begin());
  return LossReport{.loss = loss.loss,
                    .td_error_mean = loss.td_error_mean,
                    .q_mean = loss.q_mean,
                    .gradient_norm = norm,
                    .rows = double(batch.size())};
}

// Settings that MakePolicyCritic does not check.
Status CheckConfig(const TrainingConfig& config, const EnvSpec& env) {
  if (env.action.discrete()) {
    return InvalidArgument("{}: dpg needs continuous actions, which this environment does not have",
                           env.id);
  }
  const LearnerConfig& l = config.learner;
  TROOP_RETURN_IF_ERROR(CheckValueHead(ModelSetupOf(config)));
  if (l.target_update_every_updates < 1) {
    return InvalidArgument("learner.target_update_every_updates is {}, must be at least 1",
                           l.target_update_every_updates);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeDpg(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<PolicyCritic> network) {
  TROOP_RETURN_IF_ERROR(CheckConfig(config, env));
  // Two parameter groups: the policy, then the critic.
  const double rate = config.optimizer.learning_rate;
  const double policy = config.optimizer.policy_learning_rate;
  TROOP_ASSIGN_OR_RETURN(auto trained,
                         TrainState::Make(config, network.get(), "dpg",
                                          {{network->critic_offset(), policy > 0 ? policy : rate},
                                           {ParameterCount(*network), rate}}));
  return std::unique_ptr<Algorithm>(new Dpg(config, env, std::move(network), std::move(trained)));
}

}  // namespace troop
