#include "kernels/loss/categorical_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr double kGamma = 0.9;

struct Batch {
  std::vector<float> logits, target, reward, discount, weight;
  std::vector<std::int32_t> length;
  CategoricalLossInput input;
};

Batch RandomBatch(std::int64_t items, const ValueSupport& support, std::int64_t steps) {
  Rng rng({3, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < items * support.atoms; ++i) {
    b.logits.push_back(float(2 * rng.Normal()));
    b.target.push_back(float(2 * rng.Normal()));
  }
  for (std::int64_t i = 0; i < items; ++i) {
    b.length.push_back(std::int32_t(1 + rng.Below(std::uint32_t(steps))));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    const bool ends = rng.Below(3) == 0;
    for (std::int32_t k = 0; k < steps; ++k) {
      const bool real = k < b.length.back();
      b.reward.push_back(real ? float(2 * rng.Normal()) : 0);
      b.discount.push_back(real && ends && k + 1 == b.length.back() ? 0 : 1);
    }
  }
  b.input = {.batch = items,
             .steps = steps,
             .support = support,
             .logits = b.logits.data(),
             .logits_target = b.target.data(),
             .reward = b.reward.data(),
             .discount = b.discount.data(),
             .length = b.length.data(),
             .weight = b.weight.data(),
             .gamma = kGamma};
  return b;
}

struct Outcome {
  DqnLossSummary summary;
  std::vector<float> dlogits, priority;
};
Outcome Evaluate(const CategoricalLossInput& in) {
  Outcome r;
  r.dlogits.assign(std::size_t(in.batch * in.support.atoms), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = CategoricalLoss(in, {r.dlogits.data(), r.priority.data()});
  return r;
}

std::vector<double> Probabilities(const float* logits, std::int64_t atoms) {
  std::vector<double> p;
  double sum = 0;
  for (std::int64_t k = 0; k < atoms; ++k) sum += p.emplace_back(std::exp(double(logits[k])));
  for (double& x : p) x /= sum;
  return p;
}

// Bellemare et al. 2017, eq. 7: each atom takes [1 - |T z_j - z_i| / Δz] from 0 to 1 of each. The
// return by the recursion G_k = r_k + γ d_k G_{k+1} of every atom.
std::vector<double> Target(const CategoricalLossInput& in, std::int64_t i) {
  const ValueSupport& s = in.support;
  const std::vector<double> next = Probabilities(in.logits_target + i * s.atoms, s.atoms);
  std::vector<double> m(std::size_t(s.atoms), 0.0);
  for (std::int64_t j = 0; j < s.atoms; ++j) {
    double g = s.low + (s.high - s.low) * double(j) / double(s.atoms - 1);
    for (std::int64_t k = in.length[i] - 1; k >= 0; --k) {
      double r = in.reward[i * in.steps + k];
      if (in.reward_clip > 0) r = std::fmax(-in.reward_clip, std::fmin(in.reward_clip, r));
      g = r + in.gamma * double(in.discount[i * in.steps + k]) * g;
    }
    g = std::fmax(s.low, std::fmin(s.high, g));
    for (std::int64_t k = 0; k < s.atoms; ++k) {
      const double z = s.low + (s.high - s.low) * double(k) / double(s.atoms - 1);
      const double near = 1 - std::abs(g - z) * double(s.atoms - 1) / (s.high - s.low);
      m[std::size_t(k)] += next[std::size_t(j)] * std::fmax(0, std::fmin(1, near));
    }
  }
  return m;
}

double MeanOf(const ValueSupport& s, const std::vector<double>& p) {
  double mean = 0;
  for (std::int64_t k = 0; k < s.atoms; ++k) {
    mean += p[std::size_t(k)] * (s.low + (s.high - s.low) * double(k) / double(s.atoms - 1));
  }
  return mean;
}

TEST(CategoricalLossTest, MatchesPaperProjectionInEveryVariant) {
  for (const ValueSupport& support : {ValueSupport{11, -3, 5}, ValueSupport{2, -1, 1},
                                      ValueSupport{51, -150, 150}, ValueSupport{7, -0.5, 0.5}}) {
    for (const double clip : {0.0, 1.0}) {
      Batch b = RandomBatch(19, support, 4);
      b.input.reward_clip = clip;
      const Outcome got = Evaluate(b.input);
      double loss = 0, error = 0, q_mean = 0;
      for (std::int64_t i = 0; i < 19; ++i) {
        const std::vector<double> m = Target(b.input, i);
        const std::vector<double> p =
            Probabilities(b.input.logits + i * support.atoms, support.atoms);
        const double weight = b.weight[std::size_t(i)];
        for (std::size_t k = 0; k < p.size(); ++k) {
          loss -= weight * m[k] * std::log(p[k]) / 19;
          EXPECT_NEAR(got.dlogits[std::size_t(i) * p.size() + k], weight * (p[k] - m[k]) / 19,
                      1e-8);
        }
        const double td = std::abs(MeanOf(support, m) - MeanOf(support, p));
        EXPECT_NEAR(got.priority[std::size_t(i)], td, 1e-5);
        error += td / 19;
        q_mean += MeanOf(support, p) / 19;
      }
      EXPECT_NEAR(got.summary.loss, loss, 1e-9);
      EXPECT_NEAR(got.summary.td_error_mean, error, 1e-9);
      EXPECT_NEAR(got.summary.q_mean, q_mean, 1e-9);
    }
  }
}

TEST(CategoricalLossTest, GradientMatchesFiniteDifferences) {
  const ValueSupport support{11, -3, 5};
  Batch b = RandomBatch(3, support, 2);
  const Outcome got = Evaluate(b.input);
  for (std::size_t at = 0; at < b.logits.size(); ++at) {
    const float origin = b.logits[at];
    b.logits[at] = origin + 0.0078125f;
    const double up = Evaluate(b.input).summary.loss;
    b.logits[at] = origin - 0.0078125f;
    const double down = Evaluate(b.input).summary.loss;
    b.logits[at] = origin;
    EXPECT_NEAR(got.dlogits[at], (up - down) / 0.015625, 1e-5);
  }
}

TEST(CategoricalLossTest, IgnoresTargetAfterTermination) {
  const ValueSupport support{5, -2, 2};
  Batch b = RandomBatch(1, support, 1);
  b.reward[0] = 0.25f;
  b.discount[0] = 0;
  std::ranges::fill(b.target, std::numeric_limits<float>::quiet_NaN());
  const Outcome got = Evaluate(b.input);
  const std::vector<double> p = Probabilities(b.logits.data(), 5);
  EXPECT_NEAR(got.summary.loss,
              -double(b.weight[0]) * (0.75 * std::log(p[2]) + 0.25 * std::log(p[3])), 1e-9);
}

TEST(CategoricalLossTest, NonFiniteInputMakesLossNonFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (int what = 0; what < 6; ++what) {
    Batch b = RandomBatch(2, {5, -2, 2}, 2);
    b.discount.assign(4, 1);
    if (what == 0) b.reward[0] = nan;
    if (what == 1) b.reward[0] = infinity;
    if (what == 2) b.logits[2] = nan;
    if (what == 3) b.logits[2] = infinity;
    if (what == 4) b.target[2] = nan;
    if (what == 5) b.weight[0] = nan;
    EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss)) << what;
  }
}

// With several actions, the loss equals that of the taken action alone, bootstrapped from the next
// observation's action with the largest mean.
TEST(CategoricalLossTest, OnlineNetworkChoosesActionAndTargetEvaluatesIt) {
  const ValueSupport support{7, -2, 3};
  constexpr std::int64_t kItems = 23, kActions = 4, kAtoms = 7;
  for (const bool double_q : {true, false}) {
    Batch one = RandomBatch(kItems, support, 3);
    Batch b = one;
    Rng rng({5, Purpose::kTest});
    std::vector<float> online;
    std::vector<std::int32_t> action;
    b.logits.clear(), b.target.clear();
    for (std::int64_t i = 0; i < kItems * kActions * kAtoms; ++i) {
      for (std::vector<float>* values : {&b.logits, &b.target, &online})
        values->push_back(float(2 * rng.Normal()));
    }
    // Two actions with equal means: the first one must be chosen.
    std::copy_n(online.begin() + 2 * kAtoms, kAtoms, online.begin() + 3 * kAtoms);
    int other = 0;
    for (std::int64_t i = 0; i < kItems; ++i) {
      action.push_back(std::int32_t(rng.Below(kActions)));
      const std::vector<float>& chooser = double_q ? online : b.target;
      const auto means = [&](const std::vector<float>& of) {
        std::vector<double> m;
        for (std::int64_t a = 0; a < kActions; ++a)
          m.push_back(
              MeanOf(support, Probabilities(of.data() + (i * kActions + a) * kAtoms, kAtoms)));
        return std::ranges::max_element(m) - m.begin();
      };
      const std::int64_t best = means(chooser);
      other += best != means(b.target);
      const auto at = [&](std::int64_t a) { return std::ptrdiff_t((i * kActions + a) * kAtoms); };
      std::copy_n(b.logits.begin() + at(action.back()), kAtoms, one.logits.begin() + i * kAtoms);
      std::copy_n(b.target.begin() + at(best), kAtoms, one.target.begin() + i * kAtoms);
    }
    EXPECT_EQ(other > 0, double_q);
    b.input = one.input;
    b.input.actions = kActions;
    b.input.logits = b.logits.data();
    b.input.logits_target = b.target.data();
    b.input.logits_online = double_q ? online.data() : nullptr;
    b.input.action = action.data();
    one.input.logits = one.logits.data();
    one.input.logits_target = one.target.data();
    const Outcome want = Evaluate(one.input);
    Outcome got;
    got.dlogits.assign(b.logits.size(), -7);
    got.priority.assign(kItems, -7);
    got.summary = CategoricalLoss(b.input, {got.dlogits.data(), got.priority.data()});
    EXPECT_EQ(got.priority, want.priority);
    EXPECT_DOUBLE_EQ(got.summary.loss, want.summary.loss);
    for (std::int64_t i = 0; i < kItems * kActions * kAtoms; ++i) {
      const std::int64_t item = i / (kActions * kAtoms), a = i / kAtoms % kActions;
      const float gradient = a == action[std::size_t(item)]
                                 ? want.dlogits[std::size_t(item * kAtoms + i % kAtoms)]
                                 : 0;
      ASSERT_EQ(got.dlogits[std::size_t(i)], gradient) << i;
    }
  }
}

TEST(CategoricalLossTest, ExpectedValuesAndGradientMatchFormula) {
  const ValueSupport support{9, -4, 2};
  const Batch b = RandomBatch(4, support, 1);
  std::vector<float> q(4), slope(b.logits.size());
  ExpectedValues(support, 4, b.logits.data(), q.data());
  ExpectedValueGradient(support, 4, b.logits.data(), -0.5, slope.data());
  for (std::int64_t i = 0; i < 4; ++i) {
    std::vector<float> row(b.logits.begin() + i * 9, b.logits.begin() + (i + 1) * 9);
    EXPECT_NEAR(q[std::size_t(i)], MeanOf(support, Probabilities(row.data(), 9)), 1e-6);
    for (std::size_t k = 0; k < 9; ++k) {
      const float origin = row[k];
      row[k] = origin + 0.0078125f;
      const double up = MeanOf(support, Probabilities(row.data(), 9));
      row[k] = origin - 0.0078125f;
      const double down = MeanOf(support, Probabilities(row.data(), 9));
      row[k] = origin;
      EXPECT_NEAR(slope[std::size_t(i) * 9 + k], -0.5 * (up - down) / 0.015625, 1e-5);
    }
  }
}

}  // namespace
}  // namespace troop
