// Q(λ) loss over unrolls and its gradient, in f64.
#include "kernels/loss/q_lambda_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/loss/lambda_return.h"
#include "kernels/loss/unroll_td_loss.h"

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
  // The greedy value of the state after each step (Peng & Williams 1996).
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
  return UnrollTdLoss({.length = length,
                       .actions = in.actions,
                       .q = q,
                       .action = in.action + i * in.steps,
                       .target = unroll->target.data(),
                       .weight = in.weight[i],
                       .share = unroll->share,
                       .huber = in.huber},
                      out.dq + first * in.actions, out.priority + i);
}

}  // namespace

// Each step of the batch has the same share, whatever the lengths of the unrolls.
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
