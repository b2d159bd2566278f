// Actor-critic loss over unrolls and its gradient, in f64.
#include "kernels/loss/policy_gradient_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/loss/vtrace_return.h"

namespace troop {
namespace {

// Values of every step of the batch, in the order of the unrolls.
struct Steps {
  explicit Steps(std::size_t count)
      : row(count),
        index(count),
        weight(count),
        log_pi(count),
        ratio(count),
        error(count),
        advantage(count) {}
  std::vector<std::int64_t> row;                                // of its frame
  std::vector<std::int64_t> index;                              // in the arrays [B, S]
  std::vector<double> weight, log_pi, ratio, error, advantage;  // error: v_t - V_t
};

// Targets and advantages of all steps, and the priorities of the unrolls.
Steps Correct(const PolicyGradientInput& in, std::size_t count, float* priority) {
  Steps steps(count);
  const auto longest = std::size_t(in.steps);
  // Reused by every unroll; the frame after the last step has a value only.
  std::vector<double> value(longest + 1), target(longest);
  const std::int64_t columns = in.policy->columns();
  std::size_t first = 0;  // step
  std::int64_t row = 0;   // frame
  for (std::int64_t i = 0; i < in.batch; ++i) {
    const std::int32_t length = in.length[i];
    for (std::int32_t t = 0; t <= length; ++t) {
      const float* frame = in.out + (row + t) * (columns + 1);
      value[std::size_t(t)] = double(frame[columns]);
      if (t == length) break;
      const std::size_t at = first + std::size_t(t);
      steps.row[at] = row + t;
      const std::int64_t index = steps.index[at] = i * in.steps + t;
      steps.weight[at] = double(in.weight[i]);
      // π over μ: how much more likely the action is now.
      steps.log_pi[at] = in.policy->LogProbability(frame, index);
      steps.ratio[at] = std::exp(steps.log_pi[at] - double(in.log_mu[index]));
    }
    VtraceReturns({.length = length,
                   .reward = in.reward + i * in.steps,
                   .discount = in.discount + i * in.steps,
                   .value = value.data(),
                   .ratio = steps.ratio.data() + first,
                   .gamma = in.gamma,
                   .reward_clip = in.reward_clip,
                   .rho_bar = in.rho_bar,
                   .c_bar = in.c_bar,
                   .lambda = in.lambda},
                  target.data(), steps.advantage.data() + first);
    double sum = 0;
    for (std::int32_t t = 0; t < length; ++t) {
      const std::size_t at = first + std::size_t(t);
      const double wanted = in.target ? in.target[steps.index[at]] : target[std::size_t(t)];
      steps.error[at] = wanted - value[std::size_t(t)];
      // PPO: GAE instead of IMPALA's one-step advantage of the targets.
      if (in.ratio_clip > 0) steps.advantage[at] = steps.error[at];
      if (in.target) steps.advantage[at] = in.advantage[steps.index[at]];
      sum += std::abs(steps.error[at]);
    }
    priority[i] = float(sum / double(length));
    first += std::size_t(length);
    row += length + 1;
  }
  return steps;
}

// Shifts and scales the advantages of the batch to mean 0 and standard deviation 1.
void Normalize(std::vector<double>* advantage) {
  const auto count = double(advantage->size());
  const double mean = std::accumulate(advantage->begin(), advantage->end(), 0.0) / count;
  double squares = 0;
  for (const double a : *advantage) squares += (a - mean) * (a - mean);
  const double deviation = std::sqrt(squares / count) + 1e-8;
  for (double& a : *advantage) a = (a - mean) / deviation;
}

// The policy's loss of a step, and its derivative by log π(a).
struct PolicyTerm {
  double loss = 0, slope = 0;
  bool clipped = false;
};
PolicyTerm PolicyLoss(const PolicyGradientInput& in, double log_pi, double ratio,
                      double advantage) {
  if (in.ratio_clip == 0) return {-log_pi * advantage, -advantage, false};
  const double bound = std::clamp(ratio, 1 - in.ratio_clip, 1 + in.ratio_clip);
  // The bound only counts where it makes the objective smaller; its gradient is 0.
  const bool clipped = bound * advantage < ratio * advantage;
  if (clipped) return {-bound * advantage, 0, true};
  return {-ratio * advantage, -ratio * advantage, false};
}

// The value's loss of a step, and its derivative by V.
struct ValueTerm {
  double loss = 0, slope = 0;
};
ValueTerm ValueLoss(const PolicyGradientInput& in, std::int64_t index, double value, double error) {
  const ValueTerm plain{error * error / 2, -error};
  if (in.value_clip == 0) return plain;
  // The value may move freely within the bounds; beyond them it counts as if it were at a bound.
  const double moved = value - double(in.mu_value[index]);
  const double excess = moved - std::clamp(moved, -in.value_clip, in.value_clip);
  // v_t minus the clipped value. NaN reaches the loss through the comparison's other branch.
  const double clipped = error + excess;
  if (!(clipped * clipped > error * error)) return std::isnan(clipped) ? ValueTerm{clipped} : plain;
  return {clipped * clipped / 2, 0};
}

// Mean of ratio - 1 - log ratio over the steps, which estimates KL(μ, π) without a negative value.
double Divergence(const std::vector<double>& ratio) {
  double sum = 0;
  for (const double r : ratio) sum += r - 1 - std::log(r);
  return sum / double(ratio.size());
}

}  // namespace

PolicyGradientSummary PolicyGradientLoss(const PolicyGradientInput& in,
                                         const PolicyGradientOutput& out) {
  const std::int64_t all = std::accumulate(in.length, in.length + in.batch, std::int64_t{0});
  const std::int64_t columns = in.policy->columns(), width = columns + 1;
  std::fill(out.dout, out.dout + (all + in.batch) * width, 0.0f);
  if (all == 0) return {};
  Steps steps = Correct(in, std::size_t(all), out.priority);
  if (in.normalize_advantages) Normalize(&steps.advantage);
  const double share = 1 / double(all);
  PolicyGradientSummary sum{.divergence = Divergence(steps.ratio)};
  // The bound of OpenAI's Spinning Up, with its factor.
  sum.stopped = in.target_kl > 0 && sum.divergence > 1.5 * in.target_kl;
  const double entropy_cost = sum.stopped ? 0 : in.entropy_cost;
  for (std::size_t at = 0; at < std::size_t(all); ++at) {
    const float* frame = in.out + steps.row[at] * width;
    float* dframe = out.dout + steps.row[at] * width;
    const double scale = steps.weight[at] * share, ratio = steps.ratio[at];
    PolicyTerm term = PolicyLoss(in, steps.log_pi[at], ratio, steps.advantage[at]);
    // The policy stays as it is; its value is still learned.
    if (sum.stopped) term.loss = term.slope = 0;
    const double entropy = in.policy->Backward(
        frame, steps.index[at], {.scale = scale, .slope = term.slope, .entropy_cost = entropy_cost},
        dframe);
    const double error = steps.error[at];
    const ValueTerm value = ValueLoss(in, steps.index[at], double(frame[columns]), error);
    dframe[columns] = float(scale * in.value_cost * value.slope);
    sum.policy_loss += scale * term.loss;
    sum.value_loss += scale * value.loss;
    sum.entropy += share * entropy;
    sum.value_mean += share * double(frame[columns]);
    sum.error_mean += share * std::abs(error);
    sum.clipped += term.clipped ? share : 0;
    sum.loss += scale * (term.loss + in.value_cost * value.loss - entropy_cost * entropy);
  }
  return sum;
}

}  // namespace troop
