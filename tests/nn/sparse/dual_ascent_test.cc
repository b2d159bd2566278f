// The solver of linear models, against scikit-learn's optima.
#include "nn/sparse/dual_ascent.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "tests/datasets/sparse/sparse_fixture.h"

namespace troop {
namespace {

// The problem of the fixture.
struct Problem {
  SparseRows rows;
  std::vector<float> targets;
  double alpha = 0;
};

Problem FixtureProblem() {
  const JsonValue& optima = *test::SparseExpected().Find("optima");
  Problem problem{.alpha = optima.Find("alpha")->number};
  for (const JsonValue& row : optima.Find("x")->array) {
    problem.rows.width = std::ssize(row.array);
    for (std::size_t j = 0; j < row.array.size(); ++j) {
      if (row.array[j].number == 0) continue;
      problem.rows.columns.push_back(std::int32_t(j));
      problem.rows.values.push_back(float(row.array[j].number));
    }
    problem.rows.EndRow();
  }
  for (const JsonValue& y : optima.Find("y")->array) problem.targets.push_back(float(y.number));
  return problem;
}

// Passes over all examples, in the order of their indices.
void Solve(DualAscent* solver, std::int64_t examples, int passes) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(examples));
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < passes; ++i) solver->Pass(order);
}

TEST(DualAscentTest, OptimaEqualThoseOfScikitLearn) {
  const Problem problem = FixtureProblem();
  for (const LinearLoss loss :
       {LinearLoss::kLog, LinearLoss::kSquaredHinge, LinearLoss::kSquaredError}) {
    DualAscent solver({.loss = loss, .l2 = problem.alpha}, &problem.rows, problem.targets);
    Solve(&solver, problem.rows.size(), 200);
    const double best =
        test::SparseExpected().Find("optima")->Find(std::string(EnumName(loss)))->number;
    EXPECT_NEAR(solver.Objective(), best, 1e-6 * best) << EnumName(loss);
    // No gap is left, and the dual is never above the optimum.
    EXPECT_NEAR(solver.DualObjective(), best, 1e-5 * best) << EnumName(loss);
  }
}

// The optimum of L1 alone is approached with a small L2 that the method needs.
TEST(DualAscentTest, LassoEqualsThatOfScikitLearn) {
  const Problem problem = FixtureProblem();
  const double l2 = 1e-4 * problem.alpha;
  DualAscent solver({.loss = LinearLoss::kLog, .l2 = l2, .l1 = problem.alpha}, &problem.rows,
                    problem.targets);
  Solve(&solver, problem.rows.size(), 20000);
  double squares = 0;
  for (const float w : solver.weights()) squares += double(w) * double(w);
  const double best = test::SparseExpected().Find("optima")->Find("log_loss_l1")->number;
  EXPECT_NEAR(solver.Objective() - 0.5 * l2 * squares, best, 1e-4 * best);
  EXPECT_GT(std::ranges::count(solver.weights(), 0.0f), 0);
}

// After any pass the dual is below the optimum, and the objective above it.
TEST(DualAscentTest, ObjectivesEncloseTheOptimum) {
  const Problem problem = FixtureProblem();
  for (const LinearLoss loss :
       {LinearLoss::kLog, LinearLoss::kSquaredHinge, LinearLoss::kSquaredError}) {
    const double best =
        test::SparseExpected().Find("optima")->Find(std::string(EnumName(loss)))->number;
    DualAscent solver({.loss = loss, .l2 = problem.alpha}, &problem.rows, problem.targets);
    double before = solver.DualObjective();
    EXPECT_NEAR(before, 0, 1e-12) << EnumName(loss);  // all duals are 0
    for (int pass = 0; pass < 5; ++pass) {
      Solve(&solver, problem.rows.size(), 1);
      EXPECT_GE(solver.DualObjective(), before - 1e-6) << EnumName(loss);
      before = solver.DualObjective();
      EXPECT_LE(before, best + 1e-6) << EnumName(loss);
      EXPECT_GE(solver.Objective(), best - 1e-6) << EnumName(loss);
    }
  }
}

// Extreme examples: large rows, and a penalty so small that outputs are large.
TEST(DualAscentTest, LargeRowsStayFinite) {
  SparseRows rows{.begins = {0, 1, 2, 2}, .columns = {0, 0}, .values = {1e4f, -1e4f}, .width = 1};
  const float targets[] = {1, 1, -1};
  for (const LinearLoss loss :
       {LinearLoss::kLog, LinearLoss::kSquaredHinge, LinearLoss::kSquaredError}) {
    DualAscent solver({.loss = loss, .l2 = 1e-9}, &rows, targets);
    Solve(&solver, 3, 50);
    EXPECT_TRUE(std::isfinite(solver.Objective())) << EnumName(loss);
    EXPECT_TRUE(std::isfinite(solver.DualObjective())) << EnumName(loss);
  }
}

TEST(DualAscentTest, RestoredStateContinuesWithTheSameBytes) {
  const Problem problem = FixtureProblem();
  const DualAscentOptions options{.l2 = problem.alpha, .l1 = 0.01};
  DualAscent whole(options, &problem.rows, problem.targets), rest = whole;
  Solve(&whole, problem.rows.size(), 3);
  ASSERT_TRUE(rest.SetState(whole.state()).ok());
  Solve(&whole, problem.rows.size(), 2);
  Solve(&rest, problem.rows.size(), 2);
  EXPECT_EQ(whole.state(), rest.state());
  EXPECT_TRUE(std::ranges::equal(whole.weights(), rest.weights()));
  // A state of other sizes, and one with a NaN.
  DualAscent::State bad = whole.state();
  bad.sums.pop_back();
  EXPECT_EQ(rest.SetState(bad).code(), Code::kInvalidArgument);
  bad.sums.push_back(NAN);
  EXPECT_EQ(rest.SetState(bad).code(), Code::kInvalidArgument);
  EXPECT_EQ(whole.state(), rest.state());
}

}  // namespace
}  // namespace troop
