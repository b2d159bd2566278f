// Outputs and gradients of linear models, against plain f64 loops and differences.
#include "nn/sparse/linear_model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "core/base/philox.h"
#include "nn/sparse/row_optimizer.h"
#include "tests/datasets/sparse/sparse_fixture.h"

namespace troop {
namespace {

// Three features, of which the example has the first and the last.
const std::vector<std::int32_t> kColumns = {0, 2};
const std::vector<float> kValues = {0.5f, -2};
const SparseRow kExample{kColumns, kValues};

std::vector<float> RandomWeights(const LinearForm& form) {
  Rng rng({3, Purpose::kHoldout, 0, 0});
  std::vector<float> weights(static_cast<std::size_t>(form.rows() * form.outputs));
  for (float& w : weights) w = float(rng.Uniform() - 0.5);
  return weights;
}

// The loss by a dense loop; softmax by its definition.
double DenseLoss(const LinearForm& form, const std::vector<float>& weights,
                 const std::vector<float>& targets) {
  const double x[] = {0.5, 0, -2, 1};
  std::vector<double> z(targets.size(), 0.0);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t k = 0; k < z.size(); ++k) z[k] += x[i] * double(weights[i * z.size() + k]);
  }
  double loss = 0, sum = 0;
  for (std::size_t k = 0; k < z.size(); ++k) {
    const double margin = z[k] * double(targets[k]);
    if (form.softmax) loss -= targets[k] > 0 ? z[k] : 0;
    if (form.softmax) continue;
    if (form.loss == LinearLoss::kLog) loss += std::log(1 + std::exp(-margin));
    if (form.loss == LinearLoss::kSquaredHinge) loss += std::pow(std::max(0.0, 1 - margin), 2);
    if (form.loss == LinearLoss::kSquaredError) loss += std::pow(z[k] - double(targets[k]), 2) / 2;
  }
  for (const double one : z) sum += std::exp(one);
  return form.softmax ? loss + std::log(sum) : loss;
}

TEST(LinearModelTest, GradientsAreDerivativesOfTheLoss) {
  const LinearForm forms[] = {{3, 1, LinearLoss::kLog},          {3, 1, LinearLoss::kSquaredHinge},
                              {3, 1, LinearLoss::kSquaredError}, {3, 3, LinearLoss::kLog},
                              {3, 3, LinearLoss::kSquaredHinge}, {3, 3, LinearLoss::kLog, true}};
  for (const LinearForm& form : forms) {
    SCOPED_TRACE(fmt::format("{} {} {}", EnumName(form.loss), form.outputs, form.softmax));
    std::vector<float> weights = RandomWeights(form);
    std::vector<float> targets(static_cast<std::size_t>(form.outputs), -1.0f);
    targets.back() = 1;
    RowGradientSum sum(form.rows(), form.outputs);
    const double loss = AddLinearGradient(form, weights, {kExample, targets, 0.25}, &sum);
    EXPECT_NEAR(loss, DenseLoss(form, weights, targets), 1e-6);
    // The second feature is absent, so it has no row.
    EXPECT_THAT(sum.sum().rows, testing::ElementsAre(0, 2, 3));
    for (std::size_t i = 0; i < sum.sum().rows.size(); ++i) {
      for (std::int64_t k = 0; k < form.outputs; ++k) {
        const auto at = std::size_t(sum.sum().rows[i] * form.outputs + k);
        const float kept = weights[at], step = 1.0f / 512;
        weights[at] = kept + step;
        const double above = DenseLoss(form, weights, targets);
        weights[at] = kept - step;
        const double below = DenseLoss(form, weights, targets);
        weights[at] = kept;
        EXPECT_NEAR(sum.sum().values[i * std::size_t(form.outputs) + std::size_t(k)],
                    0.25 * (above - below) / (2 * double(step)), 1e-5);
      }
    }
  }
}

// An example beyond the margin of the squared hinge, and a cleared sum.
TEST(LinearModelTest, SatisfiedExamplesTouchNoRow) {
  const LinearForm form{3, 1, LinearLoss::kSquaredHinge};
  const std::vector<float> weights = {4, 0, 0, 0}, target = {1}, other = {-1};
  RowGradientSum sum(form.rows(), 1);
  EXPECT_EQ(AddLinearGradient(form, weights, {kExample, target}, &sum), 0);
  EXPECT_TRUE(sum.sum().rows.empty());
  EXPECT_EQ(AddLinearGradient(form, weights, {kExample, other}, &sum), 9);
  EXPECT_EQ(sum.sum().rows.size(), 3u);
  sum.Clear();
  EXPECT_TRUE(sum.sum().rows.empty());
  EXPECT_EQ(*sum.Row(2), 0);
}

// Outputs that overflow exp.
TEST(LinearModelTest, LargeOutputsStayFinite) {
  const LinearForm form{3, 2, LinearLoss::kLog, true};
  const std::vector<float> targets = {1, -1};
  std::vector<double> outputs = {-2000, 2000};
  EXPECT_DOUBLE_EQ(LinearLossAndSlopes(form, targets, outputs), 4000);
  EXPECT_THAT(outputs, testing::ElementsAre(-1, 1));
}

// Batches of all examples: at the optimum of least squares the gradient is 0, whatever the
// optimizer.
TEST(LinearModelTest, RowOptimizersReachTheOptimum) {
  const JsonValue& optima = *test::SparseExpected().Find("optima");
  SparseRows rows;
  for (const JsonValue& row : optima.Find("x")->array) {
    for (std::size_t j = 0; j < row.array.size(); ++j) {
      rows.columns.push_back(std::int32_t(j));
      rows.values.push_back(float(row.array[j].number));
    }
    rows.EndRow();
  }
  const LinearForm form{12, 1, LinearLoss::kSquaredError};
  for (const auto& [rule, rate, steps] : {std::tuple{RowRule::kSgd, 0.5, 4000},
                                          {RowRule::kAdaGrad, 0.3, 6000},
                                          {RowRule::kFtrl, 0.5, 6000},
                                          {RowRule::kAdam, 0.01, 4000}}) {
    RowOptimizer optimizer({.rule = rule}, form.rows(), 1);
    std::vector<float> weights(13, 0.0f);
    RowGradientSum sum(form.rows(), 1);
    for (int step = 0; step < steps; ++step) {
      sum.Clear();
      for (std::int64_t i = 0; i < rows.size(); ++i) {
        const auto y = float(optima.Find("y")->array[std::size_t(i)].number);
        AddLinearGradient(form, weights, {rows.row(i), {&y, 1}, 1 / double(rows.size())}, &sum);
      }
      optimizer.Step(sum.sum(), rate, weights);
    }
    for (const float g : sum.sum().values) EXPECT_NEAR(g, 0, 2e-4) << EnumName(rule);
  }
}

}  // namespace
}  // namespace troop
