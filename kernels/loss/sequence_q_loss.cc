// Loss of R2D2 over unrolls and its gradient, in f64.
#include "kernels/loss/sequence_q_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/loss/n_step_return.h"
#include "kernels/loss/unroll_td_loss.h"
#include "kernels/loss/value_rescaling.h"

namespace troop {
namespace {

// Bootstrap value of the frame whose rows begin at `row`, on the scale of the rewards.
double BootstrapAt(const SequenceQLossInput& in, std::int64_t row) {
  const float* const online = in.q + row;
  const float* const target = in.q_target + row;
  const float* const chooses = in.double_q ? online : target;
  // Ties go to the first action.
  const std::int64_t best = std::max_element(chooses, chooses + in.actions) - chooses;
  // max_element skips NaN; the sum over the row does not.
  const double checked =
      double(target[best]) + 0 * std::accumulate(chooses, chooses + in.actions, 0.0);
  return in.rescale ? UnrescaleValue(checked) : checked;
}

// Targets G_t of unroll i, whose frames begin at row `first` of q.
void Targets(const SequenceQLossInput& in, std::int64_t i, std::int64_t first, double* target) {
  const std::int32_t length = in.length[i];
  for (std::int32_t t = 0; t < length; ++t) {
    const auto steps = std::int32_t(std::min<std::int64_t>(in.n_step, length - t));
    const NStepReturn sum =
        SumNSteps(in.reward + i * in.stride + t, in.discount + i * in.stride + t, steps, in.gamma,
                  in.reward_clip);
    // The value after a termination may be anything, even NaN.
    const double value = sum.factor == 0 ? 0 : BootstrapAt(in, (first + t + steps) * in.actions);
    const double whole = sum.sum + sum.factor * value;
    target[t] = in.rescale ? RescaleValue(whole) : whole;
  }
}

}  // namespace

// Sums over the steps in f64, unroll by unroll, then divided by their number.
DqnLossSummary SequenceQLoss(const SequenceQLossInput& in, const DqnLossOutput& out) {
  const std::int64_t all = std::accumulate(in.length, in.length + in.batch, std::int64_t{0});
  const double share = all > 0 ? 1 / double(all) : 0;
  std::vector<double> target(std::size_t(in.stride));
  DqnLossSummary sum;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < in.batch; ++i) {
    Targets(in, i, first, target.data());
    const DqnLossSummary one = UnrollTdLoss({.length = in.length[i],
                                             .actions = in.actions,
                                             .q = in.q + first * in.actions,
                                             .action = in.action + i * in.stride,
                                             .target = target.data(),
                                             .weight = in.weight[i],
                                             .share = share,
                                             .huber = in.huber,
                                             .largest_share = in.largest_share},
                                            out.dq + first * in.actions, out.priority + i);
    sum.loss += one.loss;
    sum.td_error_mean += one.td_error_mean;
    sum.q_mean += one.q_mean;
    // The next unroll's frames follow, after the frame of this one's bootstrap value.
    first += in.length[i] + 1;
  }
  return {sum.loss * share, sum.td_error_mean * share, sum.q_mean * share};
}

}  // namespace troop
