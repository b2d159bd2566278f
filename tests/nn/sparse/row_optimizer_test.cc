// Losses, row optimizers and naive Bayes weights, against plain f64 loops.
#include "nn/sparse/row_optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "core/base/philox.h"
#include "nn/sparse/linear_loss.h"
#include "nn/sparse/naive_bayes.h"

namespace troop {
namespace {

constexpr std::int64_t kRows = 9, kWidth = 3;

// The published definitions by dense arrays in f64, which skip rows without a gradient.
struct Reference {
  RowOptimizerOptions o;
  std::vector<double> w = std::vector<double>(kRows * kWidth), a = w, b = w;
  int steps = 0;

  void Step(const std::map<int, std::vector<double>>& gradient, double rate) {
    ++steps;
    for (const auto& [row, values] : gradient) {
      for (int i = 0; i < kWidth; ++i) {
        const auto at = std::size_t(row * kWidth + i);
        const double g = values[std::size_t(i)];
        if (o.rule == RowRule::kSgd) w[at] -= rate * g;
        if (o.rule == RowRule::kAdaGrad) {
          a[at] += g * g;
          w[at] -= rate * g / (std::sqrt(a[at]) + o.epsilon);
        }
        if (o.rule == RowRule::kFtrl) {
          // McMahan et al. 2013, algorithm 1.
          const double sigma = (std::sqrt(b[at] + g * g) - std::sqrt(b[at])) / rate;
          a[at] += g - sigma * w[at];
          b[at] += g * g;
          const double sign = a[at] < 0 ? -1 : 1;
          w[at] = std::abs(a[at]) <= o.l1
                      ? 0
                      : -(a[at] - sign * o.l1) / ((o.beta + std::sqrt(b[at])) / rate + o.l2);
        }
        if (o.rule == RowRule::kAdam) {
          a[at] += (1 - o.beta1) * (g - a[at]);
          b[at] += (1 - o.beta2) * (g * g - b[at]);
          w[at] -= rate * a[at] / (1 - std::pow(o.beta1, steps)) /
                   (std::sqrt(b[at] / (1 - std::pow(o.beta2, steps))) + o.epsilon);
        }
      }
    }
  }
};

RowOptimizerOptions OptionsOf(RowRule rule) { return {.rule = rule, .l1 = 0.05, .l2 = 0.1}; }

// A gradient of some rows; row 8 never has one.
RowGradient RandomGradient(std::uint64_t step, std::map<int, std::vector<double>>* same) {
  Rng rng({7, Purpose::kHoldout, step, 0});
  RowGradientSum sum(kRows, kWidth);
  for (int k = 0; k < 4; ++k) {
    const auto row = int(rng.Below(8));
    std::vector<double>& reference = (*same)[row];
    reference.resize(kWidth);
    float* const values = sum.Row(row);
    for (int i = 0; i < kWidth; ++i) {
      const auto x = float(2 * rng.Uniform() - 1);
      values[i] += x;
      reference[std::size_t(i)] += double(x);
    }
  }
  return sum.sum();
}

TEST(RowOptimizerTest, StepsEqualTheLoopsOfTheDefinitions) {
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kFtrl, RowRule::kAdam}) {
    SCOPED_TRACE(EnumName(rule));
    RowOptimizer optimizer(OptionsOf(rule), kRows, kWidth);
    Reference reference{OptionsOf(rule)};
    std::vector<float> value(kRows * kWidth);
    for (std::uint64_t step = 0; step < 60; ++step) {
      std::map<int, std::vector<double>> same;
      const RowGradient gradient = RandomGradient(step, &same);
      const double rate = 0.1 + 0.001 * double(step);
      optimizer.Step(gradient, rate, value);
      reference.Step(same, rate);
      for (std::size_t i = 0; i < value.size(); ++i)
        ASSERT_NEAR(value[i], reference.w[i], 2e-5) << step << " " << i;
    }
    EXPECT_EQ(value[8 * kWidth], 0);
    // State exists for the touched rows only.
    EXPECT_LE(optimizer.state().rows.size(), 8u);
    EXPECT_THAT(optimizer.state().rows, testing::Not(testing::Contains(8)));
  }
}

TEST(RowOptimizerTest, RestoredStateContinuesWithTheSameBytes) {
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kFtrl, RowRule::kAdam}) {
    RowOptimizer whole(OptionsOf(rule), kRows, kWidth), rest(OptionsOf(rule), kRows, kWidth);
    std::vector<float> value(kRows * kWidth);
    std::map<int, std::vector<double>> unused;
    for (std::uint64_t step = 0; step < 5; ++step)
      whole.Step(RandomGradient(step, &unused), 0.1, value);
    ASSERT_TRUE(rest.SetState(whole.state()).ok());
    std::vector<float> other = value;
    for (std::uint64_t step = 5; step < 9; ++step) {
      whole.Step(RandomGradient(step, &unused), 0.1, value);
      rest.Step(RandomGradient(step, &unused), 0.1, other);
    }
    EXPECT_EQ(value, other) << EnumName(rule);
    EXPECT_EQ(whole.state(), rest.state()) << EnumName(rule);
  }
}

TEST(RowOptimizerTest, DamagedStatesAreRefused) {
  RowOptimizer optimizer(OptionsOf(RowRule::kAdaGrad), 4, 1);
  for (const RowOptimizer::State& bad :
       {RowOptimizer::State{1, {4}, {1}}, RowOptimizer::State{1, {-1}, {1}},
        RowOptimizer::State{1, {2, 2}, {1, 1}}, RowOptimizer::State{1, {2}, {1, 1}},
        RowOptimizer::State{-1, {}, {}}}) {
    EXPECT_EQ(optimizer.SetState(bad).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(optimizer.state(), RowOptimizer::State());
}

// Differences of the loss, and the three formulas themselves.
TEST(LinearLossTest, SlopesAreDerivatives) {
  for (const LinearLoss loss :
       {LinearLoss::kLog, LinearLoss::kSquaredHinge, LinearLoss::kSquaredError}) {
    for (const double y : {-1.0, 1.0}) {
      for (double z = -4.05; z < 4; z += 0.3) {
        const double step = 1e-6;
        const double slope = (LossOf(loss, z + step, y) - LossOf(loss, z - step, y)) / (2 * step);
        EXPECT_NEAR(LossSlope(loss, z, y), slope, 1e-7) << EnumName(loss) << " " << z;
      }
    }
  }
  EXPECT_DOUBLE_EQ(LossOf(LinearLoss::kLog, 0.5, -1), std::log(1 + std::exp(0.5)));
  EXPECT_DOUBLE_EQ(LossOf(LinearLoss::kSquaredHinge, 0.5, -1), 2.25);
  EXPECT_DOUBLE_EQ(LossOf(LinearLoss::kSquaredError, 0.5, 3), 3.125);
  // Large outputs are linear, not infinite.
  EXPECT_DOUBLE_EQ(LossOf(LinearLoss::kLog, 1e5, -1), 1e5);
  EXPECT_EQ(LossOf(LinearLoss::kLog, 1e5, 1), 0);
  EXPECT_DOUBLE_EQ(LossSlope(LinearLoss::kLog, 1e5, -1), 1);
}

// Wang & Manning 2012, eq. 1, worked out by hand: counts 2 and 0 of 2, 1 and 2 of 3.
TEST(NaiveBayesTest, RatiosEqualTheirDefinition) {
  SparseRows rows{
      .begins = {0, 1, 3, 4}, .columns = {0, 0, 1, 1}, .values = {1, 1, 1, 2}, .width = 3};
  const float targets[] = {1, 1, -1};
  const std::vector<float> ratios = NaiveBayesRatios(rows, targets, 1);
  const double p[] = {3, 2, 1}, q[] = {1, 3, 1};
  ASSERT_EQ(ratios.size(), 3u);
  for (std::size_t j = 0; j < 3; ++j)
    EXPECT_NEAR(ratios[j], std::log((p[j] / 6) / (q[j] / 5)), 1e-6) << j;
  ScaleColumns(ratios, &rows);
  EXPECT_THAT(rows.values, testing::ElementsAre(ratios[0], ratios[0], ratios[1], 2 * ratios[1]));
}

}  // namespace
}  // namespace troop
