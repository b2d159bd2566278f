// Q(λ) loss over unrolls and its gradient, in f64.
#include "kernels/loss/q_lambda_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/loss/lambda_return.h"

namespace troop {
namespace {

// An unroll of the batch, and buffers for its steps, [S].
struct Unroll {
  std::int64_t index = 0;
  std::int64_t first = 0;  // row of its first frame
  double share = 0;        // of one step: 1 / all steps of the batch
  std::vector<double> value, target;
};

// Sums over the steps of an unroll; writes its gradient and its priority.
DqnLossSummary UnrollLoss(const QLambdaLossInput& in, Unroll* unroll, const DqnLossOutput& out) {
  const std::int64_t i = unroll->index, first = unroll->first;
  const std::int32_t length = in.length[i];
  const float* q = in.q + first * in.actions;
  for (std::int32_t t = 0; t < length; ++t) {
    const float* next = q + (t + 1) * in.actions;
    unroll->value[std::size_t(t)] = *std::max_element(next, next + in.actions);
  }
  LambdaReturns({.length = length,
                 .reward = in.reward + i * in.steps,
                 .discount = in.discount + i * in.steps,
                 .value = unroll->value.data(),
                 .gamma = in.gamma,
                 .reward_clip = in.reward_clip},
                in.lambda, unroll->target.data());
  // Actions that were not taken have no gradient, and neither has the bootstrap frame.
  float* dq = out.dq + first * in.actions;
  std::fill(dq, dq + (length + 1) * in.actions, 0.0f);
  const double weight = in.weight[i];
  DqnLossSummary sum;
  for (std::int32_t t = 0; t < length; ++t) {
    const std::int64_t at = t * in.actions + in.action[i * in.steps + t];
    const double td = unroll->target[std::size_t(t)] - double(q[at]);
    const double size = std::abs(td);
    // Beyond the threshold the Huber loss is linear with slope ±1.
    const bool linear = in.huber && size > 1;
    sum.loss += weight * (linear ? size - 0.5 : 0.5 * td * td);
    sum.td_error_mean += size;
    sum.q_mean += double(q[at]);
    dq[at] = float(-weight * (linear ? std::copysign(1.0, td) : td) * unroll->share);
  }
  out.priority[i] = float(sum.td_error_mean / double(length));
  return sum;
}

}  // namespace

DqnLossSummary QLambdaLoss(const QLambdaLossInput& in, const DqnLossOutput& out) {
  const std::int64_t all = std::accumulate(in.length, in.length + in.batch, std::int64_t{0});
  const double share = all > 0 ? 1 / double(all) : 0;
  Unroll unroll{.share = share,
                .value = std::vector<double>(std::size_t(in.steps)),
                .target = std::vector<double>(std::size_t(in.steps))};
  DqnLossSummary sum;
  for (; unroll.index < in.batch; ++unroll.index) {
    const DqnLossSummary one = UnrollLoss(in, &unroll, out);
    sum.loss += one.loss;
    sum.td_error_mean += one.td_error_mean;
    sum.q_mean += one.q_mean;
    // The next unroll's frames follow, after the frame of this one's bootstrap value.
    unroll.first += in.length[unroll.index] + 1;
  }
  return {sum.loss * share, sum.td_error_mean * share, sum.q_mean * share};
}

}  // namespace troop
