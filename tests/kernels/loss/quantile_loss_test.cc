#include "kernels/loss/quantile_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::int64_t kItems = 17, kActions = 3, kSteps = 4;
constexpr double kGamma = 0.9;

struct Batch {
  std::vector<float> theta, target, online, reward, discount, weight;
  std::vector<std::int32_t> action, length;
  QuantileLossInput input;
};

Batch RandomBatch(std::int64_t quantiles) {
  Rng rng({9, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < kItems * kActions * quantiles; ++i) {
    for (std::vector<float>* values : {&b.theta, &b.target, &b.online})
      values->push_back(float(2 * rng.Normal()));
  }
  for (std::int64_t i = 0; i < kItems; ++i) {
    b.action.push_back(std::int32_t(rng.Below(kActions)));
    b.length.push_back(std::int32_t(1 + rng.Below(kSteps)));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    const bool ends = rng.Below(3) == 0;
    for (std::int32_t k = 0; k < kSteps; ++k) {
      const bool last = k + 1 == b.length.back();
      b.reward.push_back(float(2 * rng.Normal()));
      b.discount.push_back(ends && last ? 0 : 1);
    }
  }
  b.input = {.batch = kItems,
             .actions = kActions,
             .quantiles = quantiles,
             .steps = kSteps,
             .quantile = b.theta.data(),
             .quantile_target = b.target.data(),
             .quantile_online = b.online.data(),
             .action = b.action.data(),
             .reward = b.reward.data(),
             .discount = b.discount.data(),
             .length = b.length.data(),
             .weight = b.weight.data(),
             .gamma = kGamma};
  return b;
}

struct Outcome {
  DqnLossSummary summary;
  std::vector<float> gradient, priority;
};
Outcome Evaluate(const QuantileLossInput& in) {
  Outcome r;
  r.gradient.assign(std::size_t(in.batch * in.actions * in.quantiles), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = QuantileLoss(in, {r.gradient.data(), r.priority.data()});
  return r;
}

// E_j ρ of one quantile and one sample of the target, as the paper writes it (eq. 9 and 10, with
// the Huber loss divided by κ as its algorithm's authors do).
double Rho(double tau, double u, double kappa) {
  const double huber =
      std::abs(u) <= kappa && kappa > 0 ? 0.5 * u * u : kappa * (std::abs(u) - 0.5 * kappa);
  const double indicator = u < 0 ? 1 : 0;
  return std::abs(tau - indicator) * (kappa > 0 ? huber / kappa : std::abs(u));
}

// G of each quantile of the last observation, by the recursion G_k = r_k + γ d_k G_{k+1}.
std::vector<double> Targets(const QuantileLossInput& in, std::int64_t i) {
  const float* chooser = in.quantile_online != nullptr ? in.quantile_online : in.quantile_target;
  std::vector<double> sums;
  for (std::int64_t a = 0; a < kActions; ++a) {
    sums.push_back(0);
    for (std::int64_t k = 0; k < in.quantiles; ++k)
      sums.back() += double(chooser[(i * kActions + a) * in.quantiles + k]);
  }
  const std::int64_t best = std::ranges::max_element(sums) - sums.begin();
  std::vector<double> targets;
  for (std::int64_t j = 0; j < in.quantiles; ++j) {
    double g = double(in.quantile_target[(i * kActions + best) * in.quantiles + j]);
    for (std::int64_t k = in.length[i] - 1; k >= 0; --k) {
      double r = double(in.reward[i * in.steps + k]);
      if (in.reward_clip > 0) r = std::fmax(-in.reward_clip, std::fmin(in.reward_clip, r));
      g = r + in.gamma * double(in.discount[i * in.steps + k]) * g;
    }
    targets.push_back(g);
  }
  return targets;
}

TEST(QuantileLossTest, MatchesPaperFormulaInEveryVariant) {
  for (const std::int64_t quantiles : {2, 7, 32}) {
    for (const double kappa : {1.0, 0.0, 0.3}) {
      for (const bool double_q : {true, false}) {
        Batch b = RandomBatch(quantiles);
        b.input.kappa = kappa;
        b.input.reward_clip = double_q ? 0 : 1;
        if (!double_q) b.input.quantile_online = nullptr;
        const Outcome got = Evaluate(b.input);
        double loss = 0, error = 0, q_mean = 0;
        for (std::int64_t i = 0; i < kItems; ++i) {
          const std::vector<double> targets = Targets(b.input, i);
          const float* theta =
              b.theta.data() + (i * kActions + b.action[std::size_t(i)]) * quantiles;
          double mean = 0, wanted = 0;
          for (std::int64_t k = 0; k < quantiles; ++k) {
            const double tau = (2.0 * double(k) + 1) / (2.0 * double(quantiles));
            for (const double g : targets)
              loss += double(b.weight[std::size_t(i)]) * Rho(tau, g - double(theta[k]), kappa) /
                      double(quantiles) / kItems;
            mean += double(theta[k]) / double(quantiles);
            wanted += targets[std::size_t(k)] / double(quantiles);
          }
          EXPECT_NEAR(got.priority[std::size_t(i)], std::abs(wanted - mean), 1e-5);
          error += std::abs(wanted - mean) / kItems;
          q_mean += mean / kItems;
        }
        EXPECT_NEAR(got.summary.loss, loss, 1e-9);
        EXPECT_NEAR(got.summary.td_error_mean, error, 1e-9);
        EXPECT_NEAR(got.summary.q_mean, q_mean, 1e-9);
      }
    }
  }
}

TEST(QuantileLossTest, GradientMatchesFiniteDifferences) {
  Batch b = RandomBatch(5);
  const Outcome got = Evaluate(b.input);
  constexpr float kStep = 0.0009765625f;  // few samples lie nearer to a bend
  for (std::size_t at = 0; at < b.theta.size(); ++at) {
    const float origin = b.theta[at];
    b.theta[at] = origin + kStep;
    const double up = Evaluate(b.input).summary.loss;
    b.theta[at] = origin - kStep;
    const double down = Evaluate(b.input).summary.loss;
    b.theta[at] = origin;
    EXPECT_NEAR(got.gradient[at], (up - down) / (2 * double(kStep)), 1e-4) << at;
  }
}

// A median between samples: what pulls from above and from below is equal.
TEST(QuantileLossTest, GradientVanishesAtMedian) {
  const float theta[] = {0.5f}, target[] = {0.5f}, reward[] = {0}, discount[] = {1};
  const std::int32_t length[] = {1};
  QuantileLossInput in{.batch = 1,
                       .quantiles = 1,
                       .steps = 1,
                       .kappa = 1,
                       .quantile = theta,
                       .quantile_target = target,
                       .reward = reward,
                       .discount = discount,
                       .length = length,
                       .gamma = 1};
  EXPECT_EQ(Evaluate(in).gradient[0], 0);
  EXPECT_EQ(Evaluate(in).summary.loss, 0);
}

TEST(QuantileLossTest, IgnoresTargetAfterTermination) {
  Batch b = RandomBatch(3);
  std::ranges::fill(b.discount, 0.0f);
  std::ranges::fill(b.target, std::numeric_limits<float>::quiet_NaN());
  std::ranges::fill(b.online, std::numeric_limits<float>::quiet_NaN());
  const Outcome got = Evaluate(b.input);
  double loss = 0;
  for (std::int64_t i = 0; i < kItems; ++i) {
    const double r = double(b.reward[std::size_t(i * kSteps)]);
    for (std::int64_t k = 0; k < 3; ++k) {
      const float theta = b.theta[std::size_t((i * kActions + b.action[std::size_t(i)]) * 3 + k)];
      loss += double(b.weight[std::size_t(i)]) * Rho((double(k) + 0.5) / 3, r - double(theta), 1) /
              kItems;
    }
  }
  EXPECT_NEAR(got.summary.loss, loss, 1e-9);
}

TEST(QuantileLossTest, NonFiniteInputMakesLossNonFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int what = 0; what < 4; ++what) {
    Batch b = RandomBatch(3);
    std::ranges::fill(b.discount, 1.0f);
    if (what == 0) b.reward[0] = nan;
    if (what == 1) b.reward[0] = std::numeric_limits<float>::infinity();
    if (what == 2) std::fill_n(b.theta.begin(), kActions * 3, nan);
    if (what == 3) b.weight[0] = nan;
    EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss)) << what;
  }
}

}  // namespace
}  // namespace troop
