// L-BFGS and its line search, against SciPy's L-BFGS-B and scikit-learn.
#include "nn/lbfgs/lbfgs.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "nn/lbfgs/lbfgs_vectors.h"
#include "tests/nn/lbfgs/lbfgs_fixture.h"

namespace troop {
namespace {

using test::LbfgsExpected;
using ::testing::HasSubstr;
using Outcome = Lbfgs::Outcome;

template <class T>
using Function = double (*)(std::span<const T>, std::span<T>);

// A search that does not end by itself.
LbfgsOptions Endless() { return {.gradient_norm = 0, .decrease = 0}; }

// Vectors that begin at the first point of a fixture's course.
template <class T>
LbfgsVectors<T> VectorsAt(const std::vector<double>& start, int history = 10) {
  LbfgsVectors<T> vectors(history, std::ssize(start));
  std::ranges::transform(start, vectors.at(VectorName::kWeights).begin(),
                         [](double x) { return T(x); });
  return vectors;
}
template <class T>
std::vector<double> PointOf(const LbfgsVectors<T>& vectors) {
  const auto x = vectors.at(VectorName::kWeights);
  return {x.begin(), x.end()};
}

void ExpectCourse(const std::string& name, Function<double> function) {
  const JsonValue& course = *LbfgsExpected().Find(name);
  auto vectors = VectorsAt<double>(test::Numbers(*course.Find("start")));
  Lbfgs lbfgs(Endless());
  const auto& points = course.Find("points")->array;
  ASSERT_EQ(points.size(), 20) << name;
  for (std::size_t i = 0; i < points.size(); ++i) {
    ASSERT_TRUE(RunLbfgsIteration(&lbfgs, &vectors, function).ok());
    ASSERT_EQ(lbfgs.iterations(), std::int64_t(i) + 1) << name;
    test::ExpectPoint(PointOf(vectors), test::Numbers(points[i]), 1e-6,
                      name + " " + std::to_string(i));
    const double value = course.Find("values")->array[i].number;
    EXPECT_NEAR(lbfgs.value(), value, 1e-6 * value) << name << " " << i;
  }
}

TEST(LbfgsTest, IteratesEqualThoseOfSciPy) {
  ExpectCourse("logistic", test::Logistic<double>);
  ExpectCourse("rosenbrock", test::Rosenbrock<double>);
  ExpectCourse("powell", test::Powell<double>);
}

TEST(LbfgsTest, OptimumEqualsThatOfScikitLearn) {
  const std::vector<double> best = test::Numbers(*LbfgsExpected().Find("optimum"));
  std::vector<double> gradient(best.size());
  const double value = test::Logistic<double>(best, gradient);
  auto exact = VectorsAt<double>(std::vector<double>(best.size()));
  Lbfgs lbfgs({.gradient_norm = 1e-5, .decrease = 0});
  while (lbfgs.outcome() == Outcome::kRunning)
    ASSERT_TRUE(RunLbfgsIteration(&lbfgs, &exact, test::Logistic<double>).ok());
  EXPECT_EQ(lbfgs.outcome(), Outcome::kConverged) << lbfgs.Reason();
  test::ExpectPoint(PointOf(exact), best, 1e-6, "f64");
  EXPECT_NEAR(lbfgs.value(), value, 1e-9 * value);

  // With vectors in f32 the value is within 1e-5.
  auto rounded = VectorsAt<float>(std::vector<double>(best.size()));
  Lbfgs single({.gradient_norm = 1e-4});
  while (single.outcome() == Outcome::kRunning && single.iterations() < 200)
    ASSERT_TRUE(RunLbfgsIteration(&single, &rounded, test::Logistic<float>).ok());
  EXPECT_NEAR(single.value(), value, 1e-5 * value) << single.Reason();
}

// A state that is restored at any request continues with the same bits.
TEST(LbfgsTest, RestoredStateContinuesExactly) {
  const auto start = test::Numbers(*LbfgsExpected().Find("rosenbrock")->Find("start"));
  auto vectors = VectorsAt<double>(start, 3), others = VectorsAt<double>(start, 3);
  LbfgsOptions options = Endless();
  options.history = 3;
  Lbfgs plain(options);
  std::vector<double> state = Lbfgs(options).Save();
  for (int i = 0; i < 200; ++i) {
    Lbfgs again(options);
    ASSERT_TRUE(again.Restore(state).ok());
    for (const auto& [lbfgs, store] : {std::pair{&plain, &vectors}, {&again, &others}}) {
      const Lbfgs::Request request = lbfgs->request();
      std::vector<double> results;
      ASSERT_TRUE(store->Run(request.commands, &results).ok());
      if (request.evaluate) {
        results.push_back(test::Rosenbrock<double>(store->at(VectorName::kWeights),
                                                   store->at(VectorName::kGradient)));
      }
      lbfgs->Take(results);
    }
    state = again.Save();
    ASSERT_EQ(state, plain.Save()) << i;
  }
  EXPECT_GT(plain.iterations(), 5);
  EXPECT_EQ(PointOf(vectors), PointOf(others));
}

TEST(LbfgsTest, StatesOutOfRangeAreRefused) {
  const std::vector<double> good = Lbfgs({.history = 2}).Save();
  Lbfgs lbfgs({.history = 2});
  EXPECT_TRUE(lbfgs.Restore(good).ok());
  EXPECT_THAT(Lbfgs({.history = 3}).Restore(good).message(), HasSubstr("for a history of 3"));
  // Phase, outcome, age, pairs, place, iterations, evaluations.
  for (const std::size_t i : {0, 1, 2, 3, 4, 10, 11}) {
    for (const double bad : {-1.0, 0.5, 1e300, std::nan("")}) {
      std::vector<double> state = good;
      state[i] = bad;
      EXPECT_FALSE(lbfgs.Restore(state).ok()) << i << " " << bad;
    }
  }
}

// Values that are not finite beyond some point of the line shorten the step.
TEST(LbfgsTest, StepsLeaveRegionsThatAreNotFinite) {
  const auto barrier = [](std::span<const double> x, std::span<double> g) {
    g[0] = 2e3 - 1 / x[0];
    return x[0] > 0 ? 2e3 * x[0] - std::log(x[0]) : std::numeric_limits<double>::quiet_NaN();
  };
  auto vectors = VectorsAt<double>({0.5});
  Lbfgs lbfgs({.gradient_norm = 1e-6, .decrease = 0});
  for (int i = 0; i < 100 && lbfgs.outcome() == Outcome::kRunning; ++i)
    ASSERT_TRUE(RunLbfgsIteration(&lbfgs, &vectors, barrier).ok());
  EXPECT_NEAR(PointOf(vectors)[0], 5e-4, 1e-9) << lbfgs.Reason();
}

TEST(LbfgsTest, FailuresHaveAReason) {
  // Not finite at the start.
  auto vectors = VectorsAt<double>({1, 1});
  Lbfgs first({});
  const auto nan = [](std::span<const double>, std::span<double>) { return std::nan(""); };
  ASSERT_TRUE(RunLbfgsIteration(&first, &vectors, nan).ok());
  EXPECT_EQ(first.outcome(), Outcome::kNotFinite);
  EXPECT_THAT(first.Reason(), HasSubstr("value at the first weights is nan"));
  // A gradient of the wrong sign: all steps rise, and the weights return to the start.
  Lbfgs wrong({});
  const auto rising = [](std::span<const double> x, std::span<double> g) {
    g[0] = -2 * x[0];
    g[1] = -2 * x[1];
    return x[0] * x[0] + x[1] * x[1];
  };
  ASSERT_TRUE(RunLbfgsIteration(&wrong, &vectors, rising).ok());
  EXPECT_EQ(wrong.outcome(), Outcome::kStuck);
  EXPECT_THAT(wrong.Reason(), HasSubstr("the gradient is not that of the function"));
  EXPECT_EQ(PointOf(vectors), (std::vector<double>{1, 1}));
  EXPECT_EQ(wrong.request().commands.size(), 0);
}

TEST(LbfgsVectorsTest, UnknownVectorsAreRefusedBeforeAnyChange) {
  LbfgsVectors<double> vectors(1, 2);
  vectors.at(VectorName::kWeights)[0] = 3;
  std::vector<double> results;
  const std::vector<VectorCommand> commands = {{VectorOp::kScale, VectorName::kWeights, 0, 2},
                                               {VectorOp::kDot, 7, 0, 0}};
  EXPECT_THAT(vectors.Run(commands, &results).message(), HasSubstr("there are 4 operations and 7"));
  EXPECT_EQ(vectors.at(VectorName::kWeights)[0], 3);
  const std::vector<VectorCommand> unknown = {{VectorOp(4), 0, 0, 0}};
  EXPECT_FALSE(vectors.Run(unknown, &results).ok());
  EXPECT_TRUE(results.empty());
}

// The steps of one search fulfill both conditions for lines of every shape.
TEST(LineSearchTest, StepsFulfillTheWolfeConditions) {
  using Line = std::function<std::pair<double, double>(double)>;
  const std::vector<Line> lines = {
      // Functions 1 and 3 of Moré & Thuente, and a line with a far minimum.
      [](double t) {
        return std::pair{-t / (t * t + 2), (t * t - 2) / ((t * t + 2) * (t * t + 2))};
      },
      [](double t) {
        return std::pair{std::pow(t + 0.004, 5) - 2 * std::pow(t + 0.004, 4),
                         5 * std::pow(t + 0.004, 4) - 8 * std::pow(t + 0.004, 3)};
      },
      [](double t) {
        return std::pair{(t - 1e4) * (t - 1e4), 2 * (t - 1e4)};
      }};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const double first : {1e-3, 1e-1, 10.0, 1e3}) {
      const auto [f0, slope0] = lines[i](0);
      const LineSearchOptions options{.decrease = 1e-3, .curvature = 0.1, .interval = 1e-10};
      LineSearch search(options, f0, slope0, first);
      auto result = LineSearch::Result::kEvaluate;
      double f = 0, slope = 0;
      while (result == LineSearch::Result::kEvaluate) {
        std::tie(f, slope) = lines[i](search.step());
        result = search.Report(f, slope);
      }
      EXPECT_EQ(result, LineSearch::Result::kFound) << i << " " << first;
      EXPECT_LE(f, f0 + 1e-3 * search.step() * slope0) << i << " " << first;
      EXPECT_LE(std::abs(slope), 0.1 * std::abs(slope0)) << i << " " << first;
    }
  }
}

}  // namespace
}  // namespace troop
