#include "apps/sweep/score_interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/storage/json.h"

namespace troop {
namespace {

using Strata = std::vector<std::vector<double>>;

JsonValue Fixture() {
  std::ostringstream text;
  text << std::ifstream(TROOP_SOURCE_DIR "/tests/fixtures/sweep/interquartile_mean.json").rdbuf();
  Result<JsonValue> cases = ParseJson(text.str());
  EXPECT_TRUE(cases.ok()) << cases.status().ToString();
  return cases.ok() ? std::move(*cases) : JsonValue();
}

Strata ScoresOf(const JsonValue& one) {
  Strata strata;
  for (const JsonValue& task : one.Find("scores")->array) {
    strata.emplace_back();
    for (const JsonValue& score : task.array) strata.back().push_back(score.number);
  }
  return strata;
}

// The fixture has 50,000 resamples; its own error is less than half of that of 10,000. Six standard
// errors of the latter are more than five of the difference: a false alarm in a million. The draws
// are fixed, so the result is too.
TEST(ScoreIntervalTest, EqualsRliable) {
  const JsonValue cases = Fixture();
  ASSERT_GE(cases.array.size(), 6u);
  for (const JsonValue& one : cases.array) {
    const Strata strata = ScoresOf(one);
    const ScoreInterval interval = BootstrapInterquartileMean(strata);
    EXPECT_NEAR(interval.iqm, one.Find("iqm")->number, 1e-12);
    const double tolerance = 6 * one.Find("spread")->number + 1e-9;
    const double low = one.Find("low")->number, high = one.Find("high")->number;
    ASSERT_LT(tolerance, 0.5 * (high - low)) << "the tolerance must tell intervals apart";
    EXPECT_NEAR(interval.low, low, tolerance) << strata.size() << " x " << strata[0].size();
    EXPECT_NEAR(interval.high, high, tolerance) << strata.size() << " x " << strata[0].size();
  }
}

TEST(ScoreIntervalTest, DropsQuarterOfValuesAtEachEnd) {
  EXPECT_EQ(InterquartileMean({7}), 7);
  EXPECT_EQ(InterquartileMean({1, 3, 8}), 4) << "fewer than 4 values: their mean";
  EXPECT_EQ(InterquartileMean({1000, 1, 3, 2}), 2.5);
  EXPECT_EQ(InterquartileMean({9, 1, 2, 3, -900, 4, 900}), 19.0 / 5) << "7 / 4 rounds down to 1";
  EXPECT_EQ(InterquartileMean({1, 2, 3, 4, 5, 6, 7, 800}), 4.5);
}

// Strata of constant scores: a bootstrap over all runs together would mix them.
TEST(ScoreIntervalTest, ResamplesWithinStrata) {
  const ScoreInterval constant = BootstrapInterquartileMean(Strata{{1, 1, 1}, {5, 5, 5}});
  EXPECT_EQ(constant, (ScoreInterval{3, 3, 3}));
}

TEST(ScoreIntervalTest, EqualScoresGiveEqualIntervals) {
  const Strata strata{{1, 4, 2, 8, 5}, {7, 1, 3}};
  EXPECT_EQ(BootstrapInterquartileMean(strata), BootstrapInterquartileMean(strata));
  EXPECT_EQ(BootstrapInterquartileMean(Strata{{3}}), (ScoreInterval{3, 3, 3}));
  EXPECT_EQ(BootstrapInterquartileMean(Strata{{3}, {5}}), (ScoreInterval{4, 4, 4}));
  const ScoreInterval two = BootstrapInterquartileMean(Strata{{3, 9}});
  EXPECT_EQ(two, (ScoreInterval{6, 3, 9})) << "the range of two seeds";
}

// Strata with equal scores must not draw the same runs, which would double their variance.
TEST(ScoreIntervalTest, StrataDrawIndependently) {
  const std::vector<double> scores{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const ScoreInterval one = BootstrapInterquartileMean(Strata{scores});
  const ScoreInterval four = BootstrapInterquartileMean(Strata{scores, scores, scores, scores});
  EXPECT_LT(four.high - four.low, 0.75 * (one.high - one.low)) << "about half as wide";
}

}  // namespace
}  // namespace troop
