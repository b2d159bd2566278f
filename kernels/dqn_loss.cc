#include "kernels/dqn_loss.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

double BootstrapValue(const DqnLossInput& in, std::int64_t item) {
  const float* target = in.q_next_target + item * in.actions;
  const float* chooser = target;
  if (in.q_next_online != nullptr) chooser = in.q_next_online + item * in.actions;
  return target[std::max_element(chooser, chooser + in.actions) - chooser];
}

// The clip passes NaN on, so that it is noticed.
double Clipped(double reward, double limit) {
  return limit > 0 ? std::clamp(reward, -limit, limit) : reward;
}

double Target(const DqnLossInput& in, std::int64_t item) {
  const float* reward = in.reward + item * in.steps;
  const float* discount = in.discount + item * in.steps;
  double sum = 0, factor = 1;
  for (std::int32_t k = 0; k < in.length[item]; ++k) {
    sum += factor * Clipped(reward[k], in.reward_clip);
    factor *= in.gamma * double(discount[k]);
  }
  return factor == 0 ? sum : sum + factor * BootstrapValue(in, item);
}

}  // namespace

DqnLossSummary DqnLoss(const DqnLossInput& in, const DqnLossOutput& out) {
  DqnLossSummary sum;
  for (std::int64_t i = 0; i < in.batch; ++i) {
    const double q = in.q[i * in.actions + in.action[i]];
    const double td = Target(in, i) - q;
    const double size = std::abs(td);
    const double weight = in.weight != nullptr ? in.weight[i] : 1.0;
    const bool linear = in.huber && size > 1;
    sum.loss += weight * (linear ? size - 0.5 : 0.5 * td * td);
    sum.td_error_mean += size;
    sum.q_mean += q;
    float* dq = out.dq + i * in.actions;
    std::fill(dq, dq + in.actions, 0.0f);
    const double slope = linear ? std::copysign(1.0, td) : td;
    dq[in.action[i]] = float(-weight * slope / double(in.batch));
    out.priority[i] = float(size);
  }
  const double scale = in.batch > 0 ? 1.0 / double(in.batch) : 0;
  return {sum.loss * scale, sum.td_error_mean * scale, sum.q_mean * scale};
}

}  // namespace troop
