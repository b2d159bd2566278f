#include "apps/sweep/search_space.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SearchRange Range(const std::string& text) {
  auto range = ParseRange(text);
  EXPECT_TRUE(range.ok() && range->has_value()) << range.status().ToString();
  return range.ok() && *range ? **range : SearchRange{.key = "seed", .high = 1};
}

std::vector<SearchRange> FiveRanges() {
  return {Range("learner.gamma=uniform:0.9,0.999"),
          Range("optimizer.learning_rate=loguniform:1e-5,1e-2"), Range("actor.n_step=int:1,10"),
          Range("learner.batch_size=logint:8,512"), Range("env.id=choice:a,b,c")};
}

// Expected values: Philox4x32-10, SplitMix64, FNV-1a and the inverse distribution functions written
// again in Python.
TEST(SearchSpaceTest, ValuesFollowFromSeedTrialAndKey) {
  const auto ranges = FiveRanges();
  EXPECT_THAT(SampleTrial(ranges, 1, 0),
              ElementsAre("learner.gamma=0.933552874", "optimizer.learning_rate=0.000765158861",
                          "actor.n_step=8", "learner.batch_size=236", "env.id=b"));
  EXPECT_THAT(SampleTrial(ranges, 1, 1),
              ElementsAre("learner.gamma=0.995323015", "optimizer.learning_rate=0.00617392335",
                          "actor.n_step=4", "learner.batch_size=156", "env.id=c"));
  EXPECT_THAT(SampleTrial(ranges, 9, 4095),
              ElementsAre("learner.gamma=0.922750397", "optimizer.learning_rate=0.000116429279",
                          "actor.n_step=4", "learner.batch_size=76", "env.id=b"));
}

TEST(SearchSpaceTest, OtherRangesDoNotChangeValue) {
  const auto ranges = FiveRanges();
  for (const SearchRange& range : ranges) {
    EXPECT_THAT(SampleTrial(ranges, 3, 7),
                testing::Contains(range.key + "=" + SampleValue(range, 3, 7)));
  }
}

// Largest distance between the distribution of 4000 samples and `below`, the probability of a value
// of at most x. The test of Kolmogorov and Smirnov accepts 1.95 / sqrt(n) at a false-alarm rate of
// 0.1 %; the draws are fixed, so the result is too.
double Distance(const SearchRange& range, const std::function<double(double)>& below) {
  constexpr int kSamples = 4000;
  std::vector<double> values;
  for (int trial = 0; trial < kSamples; ++trial) {
    values.push_back(std::stod(SampleValue(range, 5, trial)));
  }
  std::ranges::sort(values);
  double distance = 0;
  for (int i = 0; i < kSamples; ++i) {
    // Integers repeat: only the last of equal values has reached its probability.
    if (i + 1 < kSamples && values[std::size_t(i)] == values[std::size_t(i + 1)]) continue;
    distance = std::max(distance, std::abs(below(values[std::size_t(i)]) - (i + 1.0) / kSamples));
  }
  EXPECT_GE(values.front(), range.low);
  EXPECT_LE(values.back(), range.high);
  return distance;
}

TEST(SearchSpaceTest, SamplesHaveStatedDistribution) {
  const double limit = 1.95 / std::sqrt(4000.0);
  EXPECT_LT(
      Distance(Range("learner.gamma=uniform:0.5,0.75"), [](double x) { return (x - 0.5) / 0.25; }),
      limit);
  EXPECT_LT(Distance(Range("optimizer.learning_rate=loguniform:1e-6,1e-1"),
                     [](double x) { return (std::log10(x) + 6) / 5; }),
            limit);
  EXPECT_LT(Distance(Range("actor.n_step=int:3,12"), [](double k) { return (k - 2) / 10; }), limit);
  EXPECT_LT(
      Distance(Range("actor.n_step=logint:1,31"), [](double k) { return std::log2(k + 1) / 5; }),
      limit);
  std::map<std::string, int> counts;
  const SearchRange choice = Range("env.id=choice:a,\"b,c\",d");
  for (int trial = 0; trial < 3000; ++trial) ++counts[SampleValue(choice, 5, trial)];
  ASSERT_EQ(counts.size(), 3u);
  // Five standard deviations of a binomial count: a false alarm in 1.7 million.
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 1000, 130) << value;
}

TEST(SearchSpaceTest, BothBoundsOfIntegersOccur) {
  for (const char* text : {"actor.n_step=int:1,3", "actor.n_step=logint:1,3"}) {
    std::set<std::string> values;
    for (int trial = 0; trial < 200; ++trial) values.insert(SampleValue(Range(text), 1, trial));
    EXPECT_THAT(values, ElementsAre("1", "2", "3"));
  }
}

TEST(SearchSpaceTest, TextParsesToValueOfRun) {
  for (const SearchRange& range : FiveRanges()) {
    if (range.kind == RangeKind::kChoice) continue;
    for (int trial = 0; trial < 200; ++trial) {
      const std::string text = SampleValue(range, 1, trial);
      EXPECT_EQ(fmt::format("{}", std::stod(text)), text) << "the shortest text of its number";
    }
  }
}

// A range narrower than 9 digits of its neighborhood still stays within its bounds.
TEST(SearchSpaceTest, ShortenedValueStaysWithinBounds) {
  const SearchRange range = Range("learner.gamma=uniform:0.12345678949,0.12345698951");
  for (int trial = 0; trial < 2000; ++trial) {
    const double value = std::stod(SampleValue(range, 1, trial));
    ASSERT_GE(value, 0.12345678949);
    ASSERT_LE(value, 0.12345698951);
  }
}

TEST(SearchSpaceTest, EnvironmentOptionKeepsItsType) {
  EXPECT_EQ(SampleValue(Range("env.options.size=int:4,5"), 1, 0).find('.'), std::string::npos);
  const SearchRange whole = Range("env.options.gravity=uniform:1,2");
  for (int trial = 0; trial < 50; ++trial) {
    EXPECT_NE(SampleValue(whole, 1, trial).find('.'), std::string::npos);
  }
}

TEST(SearchSpaceTest, OrdinaryValueIsNoRange) {
  for (const char* text : {"actor.n_step=1,3", "name=uniform", "env.id=ALE:Pong", "learner.gamma",
                           "env.id=\"choice:a,b\"", "coordinator.listen=tcp:1,2"}) {
    const auto range = ParseRange(text);
    ASSERT_TRUE(range.ok()) << text;
    EXPECT_FALSE(range->has_value()) << text;
  }
}

TEST(SearchSpaceTest, RejectsInvalidRangeWithOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"learner.gamma=uniform:0.9,0.8", "0.9 is not below 0.8"},
      {"learner.gamma=uniform:0.9,0.9", "the range is empty"},
      {"learner.gamma=uniform:0.9", "needs two numbers"},
      {"learner.gamma=uniform:0.9,0.91,0.92", "needs two numbers"},
      {"learner.gamma=uniform:low,1", "needs two numbers"},
      {"learner.gamma=uniform:0.9,", "needs two numbers"},
      {"optimizer.learning_rate=loguniform:0,1e-2", "lower bound is 0, must be above 0"},
      {"optimizer.learning_rate=loguniform:-1,1", "must be above 0"},
      {"actor.n_step=logint:0,4", "use int"},
      {"learner.gamma=uniform:nan,1", "not finite"},
      {"learner.gamma=uniform:0,inf", "not finite"},
      {"optimizer.learning_rate=uniform:0,1e999", "not finite"},
      {"learner.gamma=uniform:0.5,0.50000001", "wide"},
      {"actor.n_step=int:1.5,4", "not an integer"},
      {"env.options.size=int:1,1e16", "not an integer of at most 1e+15"},
      {"actor.n_step=uniform:1,4", "actor.n_step is an integer"},
      {"actor.n_step=loguniform:1,4", "use logint"},
      {"env.id=uniform:1,4", "env.id is a string, not a number"},
      {"replay.persist=int:0,1", "is true or false, not a number"},
      {"network.layers=int:0,1", "is a list, not a number"},
      {"learner.gamma=uniform:0.9,1.5", "1.5 is outside of the values of learner.gamma ([0, 1])"},
      {"actor.n_step=int:0,4", "0 is outside"},
      {"learner.gama=uniform:0.9,0.99", "learner.gamma"},
      {"lr=loguniform:1e-5,1e-3", "optimizer.learning_rate"},
      {"env.id=choice:a", "at least 2 different values"},
      {"env.id=choice:a,a", "remove the duplicate"},
      {"env.idd=choice:a,b", "env.id"}};
  for (const auto& [text, why] : cases) {
    const auto range = ParseRange(text);
    ASSERT_EQ(range.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(range.status().message(), HasSubstr(why));
    EXPECT_THAT(range.status().message(), testing::StartsWith(text));
    EXPECT_EQ(range.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace troop
