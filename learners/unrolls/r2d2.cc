// Implements R2D2 updates on the CPU.
#include "learners/unrolls/r2d2.h"

#include <utility>

#include "kernels/loss/sequence_q_loss.h"
#include "learners/rl/dqn.h"
#include "learners/unrolls/unroll_algorithm.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Outputs: the action values of the frames, [F, A].
// Recurrent passes, burn-in and target network are those of the base.
class R2d2 final : public UnrollAlgorithm {
 public:
  R2d2(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
       std::unique_ptr<TrainState> trained)
      : UnrollAlgorithm(config, env, env.action.count, std::move(network), std::move(trained)) {}

 private:
  LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) override;
};

// Columns of the burn-in precede those of the steps.
LossReport R2d2::ComputeLoss(const SampleBatch& batch, const Outputs& outputs) {
  const LearnerConfig& l = config().learner;
  const std::int64_t before = config().burn_in;
  const DqnLossSummary loss = SequenceQLoss({.batch = batch.size(),
                                             .actions = env().action.count,
                                             .q = outputs.out,
                                             .q_target = outputs.target,
                                             .stride = batch.reward.dim(1),
                                             .action = batch.action.data<std::int32_t>() + before,
                                             .reward = batch.reward.data<float>() + before,
                                             .discount = batch.discount.data<float>() + before,
                                             .length = batch.length.data(),
                                             .weight = batch.weight.data(),
                                             .gamma = l.gamma,
                                             .n_step = config().n_step,
                                             .reward_clip = config().reward_clip,
                                             .double_q = l.double_q,
                                             .rescale = l.value_rescaling,
                                             .huber = l.loss == TdLoss::kHuber,
                                             .largest_share = l.priority_max_share},
                                            {outputs.dout, outputs.priority});
  return {.loss = loss.loss, .td_error_mean = loss.td_error_mean, .q_mean = loss.q_mean};
}

}  // namespace

// Its network is that of dqn, so the same checks apply.
Result<std::unique_ptr<Algorithm>> MakeR2d2(const TrainingConfig& config, const EnvSpec& env,
                                            std::unique_ptr<Module> network) {
  TROOP_RETURN_IF_ERROR(CheckDqn(config, env, *network));
  TROOP_ASSIGN_OR_RETURN(
      auto trained, TrainState::Make(config, network.get(), "r2d2",
                                     {{ParameterCount(*network), config.optimizer.learning_rate}}));
  return std::unique_ptr<Algorithm>(new R2d2(config, env, std::move(network), std::move(trained)));
}

}  // namespace troop
