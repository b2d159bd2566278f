// Implements PQN updates on the CPU.
#include "learners/unrolls/pqn.h"

#include <utility>

#include "kernels/loss/q_lambda_loss.h"
#include "learners/rl/dqn.h"
#include "learners/unrolls/unroll_algorithm.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Outputs: the action values of the frames, [F, A].
class Pqn final : public UnrollAlgorithm {
 public:
  Pqn(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
      std::unique_ptr<TrainState> trained)
      : UnrollAlgorithm(config, env, env.action.count, std::move(network), std::move(trained)) {}

 private:
  LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) override;
};

// The online weights are their own target.
LossReport Pqn::ComputeLoss(const SampleBatch& batch, const Outputs& outputs) {
  const DqnLossSummary loss = QLambdaLoss({.batch = batch.size(),
                                           .actions = env().action.count,
                                           .steps = batch.reward.dim(1),
                                           .q = outputs.out,
                                           .action = batch.action.data<std::int32_t>(),
                                           .reward = batch.reward.data<float>(),
                                           .discount = batch.discount.data<float>(),
                                           .length = batch.length.data(),
                                           .weight = batch.weight.data(),
                                           .gamma = config().learner.gamma,
                                           .lambda = config().learner.lambda,
                                           .reward_clip = config().reward_clip,
                                           .huber = config().learner.loss == TdLoss::kHuber},
                                          {outputs.dout, outputs.priority});
  return {.loss = loss.loss, .td_error_mean = loss.td_error_mean, .q_mean = loss.q_mean};
}

}  // namespace

// Its network is that of dqn, so the same checks apply.
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
