// n-step double Q-learning loss and its gradient, in f64.
#include "kernels/loss/dqn_loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/loss/n_step_return.h"

namespace troop {
namespace {

// q_next_target of the action that the chooser prefers; max_element returns the first maximum.
double BootstrapValue(const DqnLossInput& in, std::int64_t item) {
  const float* target = in.q_next_target + item * in.actions;
  const float* chooser = target;
  if (in.q_next_online != nullptr) chooser = in.q_next_online + item * in.actions;
  return target[std::max_element(chooser, chooser + in.actions) - chooser];
}

// The n-step target; a factor of 0 skips the bootstrap value, which may then be NaN.
double Target(const DqnLossInput& in, std::int64_t item) {
  const NStepReturn n = SumNSteps(in.reward + item * in.steps, in.discount + item * in.steps,
                                  in.length[item], in.gamma, in.reward_clip);
  return n.factor == 0 ? n.sum : n.sum + n.factor * BootstrapValue(in, item);
}

}  // namespace

DqnLossSummary DqnLoss(const DqnLossInput& in, const DqnLossOutput& out) {
  DqnLossSummary sum;
  for (std::int64_t i = 0; i < in.batch; ++i) {
    const double q = in.q[i * in.actions + in.action[i]];
    const double td = Target(in, i) - q;
    const double size = std::abs(td);
    const double weight = in.weight != nullptr ? in.weight[i] : 1.0;
    // Beyond the threshold the Huber loss is linear with slope ±1.
    const bool linear = in.huber && size > 1;
    sum.loss += weight * (linear ? size - 0.5 : 0.5 * td * td);
    sum.td_error_mean += size;
    sum.q_mean += q;
    float* dq = out.dq + i * in.actions;
    // Actions that were not taken have no gradient.
    std::fill(dq, dq + in.actions, 0.0f);
    const double slope = linear ? std::copysign(1.0, td) : td;
    dq[in.action[i]] = float(-weight * slope / double(in.batch));
    out.priority[i] = float(size);
  }
  const double scale = in.batch > 0 ? 1.0 / double(in.batch) : 0;
  return {sum.loss * scale, sum.td_error_mean * scale, sum.q_mean * scale};
}

}  // namespace troop
