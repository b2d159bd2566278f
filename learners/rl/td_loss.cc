// Selects the TD loss by the form of the network's values.

#include "learners/rl/td_loss.h"

#include "kernels/loss/categorical_loss.h"
#include "kernels/loss/quantile_loss.h"

namespace troop {
namespace {

// Fills the inputs that all three losses share.
template <class Input>
Input InputOf(const TrainingConfig& config, const SampleBatch& batch, const ValuesOfBatch& values) {
  Input in;
  in.batch = batch.size();
  in.actions = values.actions;
  in.steps = batch.reward.dim(1);
  in.action = values.action;
  in.reward = batch.reward.data<float>();
  in.discount = batch.discount.data<float>();
  in.length = batch.length.data();
  in.weight = batch.weight.data();
  in.gamma = config.learner.gamma;
  in.reward_clip = config.reward_clip;
  return in;
}

}  // namespace

// One loss per value form; the inputs differ only in the names of the network's outputs.
DqnLossSummary TdLoss(const TrainingConfig& config, const ValueHead& form, const SampleBatch& batch,
                      const ValuesOfBatch& values, const DqnLossOutput& out) {
  if (form.kind == ValueHead::Kind::kCategorical) {
    auto in = InputOf<CategoricalLossInput>(config, batch, values);
    in.support = form.support();
    in.logits = values.first;
    in.logits_target = values.last_target;
    in.logits_online = values.last_online;
    return CategoricalLoss(in, out);
  }
  if (form.kind == ValueHead::Kind::kQuantile) {
    auto in = InputOf<QuantileLossInput>(config, batch, values);
    in.quantiles = form.numbers;
    in.quantile = values.first;
    in.quantile_target = values.last_target;
    in.quantile_online = values.last_online;
    return QuantileLoss(in, out);
  }
  // A scalar per action: the plain TD error.
  auto in = InputOf<DqnLossInput>(config, batch, values);
  in.q = values.first;
  in.q_next_target = values.last_target;
  in.q_next_online = values.last_online;
  in.huber = config.learner.loss == TdLoss::kHuber;
  return DqnLoss(in, out);
}

}  // namespace troop
