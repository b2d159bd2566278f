// Quantile regression loss (QR-DQN) and its gradient, in f64.
#include "kernels/loss/quantile_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/loss/n_step_return.h"

namespace troop {
namespace {

// Mean of the quantiles: the expected value.
double Mean(std::int64_t n, const float* values) {
  return std::accumulate(values, values + n, 0.0) / double(n);
}

// The action with the largest mean at the last observation, under the online weights if given.
std::int64_t Best(const QuantileLossInput& in, std::int64_t item) {
  const float* chooser = in.quantile_online != nullptr ? in.quantile_online : in.quantile_target;
  chooser += item * in.actions * in.quantiles;
  std::int64_t best = 0;
  double most = 0;
  for (std::int64_t a = 0; a < in.actions; ++a) {
    const double mean = Mean(in.quantiles, chooser + a * in.quantiles);
    if (a == 0 || most < mean) best = a, most = mean;
  }
  return best;
}

// Target values of an item; after a termination, the return alone.
void MakeTargets(const QuantileLossInput& in, std::int64_t item, std::vector<double>* targets) {
  const NStepReturn n = SumNSteps(in.reward + item * in.steps, in.discount + item * in.steps,
                                  in.length[item], in.gamma, in.reward_clip);
  targets->assign(1, n.sum);
  if (n.factor == 0) return;
  const std::int64_t row = item * in.actions + Best(in, item);
  const float* next = in.quantile_target + row * in.quantiles;
  targets->clear();
  for (std::int64_t j = 0; j < in.quantiles; ++j) {
    targets->push_back(n.sum + n.factor * double(next[j]));
  }
}

// Σ_j of eq. 10 for each quantile of an item, and its derivative with respect to u. The inner loop
// runs over quantiles, which have separate sums, so that it vectorizes.
class Pairs {
 public:
  Pairs(std::int64_t quantiles, double kappa)
      : kappa_(kappa), tau_(std::size_t(quantiles)), loss_(tau_.size()), slope_(tau_.size()) {
    for (std::size_t k = 0; k < tau_.size(); ++k) {
      // Midpoints of K equal intervals (lemma 2 of the paper).
      tau_[k] = (double(k) + 0.5) / double(quantiles);
    }
  }

  void Sum(const float* quantile, const std::vector<double>& targets) {
    std::ranges::fill(loss_, 0.0);
    std::ranges::fill(slope_, 0.0);
    // 1/K of the sum over targets; a single target after a termination has weight 1.
    const double share = 1 / double(targets.size()), bend = kappa_ > 0 ? 1 / kappa_ : 0;
    for (const double target : targets) {
      for (std::size_t k = 0; k < tau_.size(); ++k) {
        const double u = target - double(quantile[k]), size = std::abs(u);
        const double side = (u < 0 ? 1 - tau_[k] : tau_[k]) * share;
        // Derivative of H: u/κ within κ, else ±1. With κ = 0 it is always ±1.
        const double inside = u * bend, outside = std::copysign(1.0, u);
        const bool bent = size < kappa_;
        loss_[k] += side * (bent ? 0.5 * u * inside : size - 0.5 * kappa_);
        slope_[k] += side * (bent ? inside : outside);
      }
    }
  }
  std::span<const double> loss() const { return loss_; }
  std::span<const double> slope() const { return slope_; }

 private:
  const double kappa_;
  std::vector<double> tau_, loss_, slope_;
};

}  // namespace

DqnLossSummary QuantileLoss(const QuantileLossInput& in, const DqnLossOutput& out) {
  DqnLossSummary sum;
  std::vector<double> targets;
  Pairs pairs(in.quantiles, in.kappa);
  const std::int64_t all = in.actions * in.quantiles;
  // Actions that were not taken have no gradient.
  std::fill_n(out.dq, in.batch * all, 0.0f);
  for (std::int64_t i = 0; i < in.batch; ++i) {
    MakeTargets(in, i, &targets);
    const std::int64_t row = i * in.actions + (in.action != nullptr ? in.action[i] : 0);
    const float* quantile = in.quantile + row * in.quantiles;
    const double weight = in.weight != nullptr ? in.weight[i] : 1.0;
    pairs.Sum(quantile, targets);
    // Σ_k over the quantiles of the item.
    double loss = 0;
    for (const double of_one : pairs.loss()) loss += of_one;
    for (std::int64_t k = 0; k < in.quantiles; ++k) {
      const double slope = pairs.slope()[std::size_t(k)];
      out.dq[row * in.quantiles + k] = float(-weight * slope / double(in.batch));
    }
    const double q = Mean(in.quantiles, quantile);
    // Mean of the target, whose distance from q is the priority.
    const double wanted =
        std::accumulate(targets.begin(), targets.end(), 0.0) / double(targets.size());
    out.priority[i] = float(std::abs(wanted - q));
    sum.loss += weight * loss;
    sum.td_error_mean += std::abs(wanted - q);
    sum.q_mean += q;
  }
  const double scale = in.batch > 0 ? 1.0 / double(in.batch) : 0;
  return {sum.loss * scale, sum.td_error_mean * scale, sum.q_mean * scale};
}

}  // namespace troop
