#include "replay/rate_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

namespace troop {
namespace {

RateLimiter Make(const RateLimiter::Options& options) {
  auto limiter = RateLimiter::Make(options);
  TROOP_CHECK(limiter.ok(), "{}", limiter.status().ToString());
  return *limiter;
}

TEST(RateLimiterTest, NothingIsSampledBelowMinItems) {
  RateLimiter limiter = Make({.samples_per_insert = 100, .min_items = 10});
  limiter.Inserted(9);
  EXPECT_FALSE(limiter.CanSample(9));
  limiter.Inserted(1);
  EXPECT_TRUE(limiter.CanSample(10));
}

TEST(RateLimiterTest, RatioZeroLimitsNothingButMinItems) {
  RateLimiter limiter = Make({.samples_per_insert = 0, .min_items = 2});
  EXPECT_FALSE(limiter.CanSample(1));
  limiter.Inserted(2);
  limiter.Sampled(1000000);
  EXPECT_TRUE(limiter.CanSample(2));
  limiter.Inserted(1000000000);
  EXPECT_TRUE(limiter.CanInsert(2));
}

// sheeprl 280: a controller that owes samples for the filling phase bursts when it is over.
TEST(RateLimiterTest, FillingUpCausesNoBurstOfSamples) {
  RateLimiter limiter = Make({.samples_per_insert = 4, .ratio_error = 0.1, .min_items = 1000});
  limiter.Inserted(1000);
  std::int64_t samples = 0;
  for (; limiter.CanSample(1000); ++samples) limiter.Sampled(1);
  EXPECT_LE(samples, 401);  // half of the band, not the 4000 of 1000 inserts
}

TEST(RateLimiterTest, TheRatioIsKeptWhicheverSideIsFaster) {
  for (const double ratio : {0.25, 1.0, 8.0, 32.0}) {
    for (const bool learner_first : {false, true}) {
      RateLimiter limiter = Make({.samples_per_insert = ratio, .min_items = 500});
      std::int64_t size = 0;
      while (limiter.inserts() < 200000) {
        const bool sample = limiter.CanSample(size), insert = limiter.CanInsert(size);
        ASSERT_TRUE(sample || insert);
        if (sample && (learner_first || !insert)) {
          limiter.Sampled(64);
        } else {
          limiter.Inserted(50);
          size += 50;
        }
      }
      const double reached = double(limiter.samples()) / double(limiter.inserts() - 500);
      EXPECT_NEAR(reached / ratio, 1, 0.02) << ratio << (learner_first ? " learner" : " actor");
    }
  }
}

// Every state that inserts and samples of some sizes can reach, with trimming at any moment.
struct Model {
  RateLimiter::Options options;
  std::int64_t capacity;  // trims bring the size down to it
  std::vector<std::int64_t> inserts, samples;
};

using State = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // inserts, samples, size

RateLimiter LimiterAt(const Model& model, const State& state) {
  RateLimiter limiter = Make(model.options);
  limiter.Inserted(std::get<0>(state));
  limiter.Sampled(std::get<1>(state));
  return limiter;
}

// Checks one state; appends where it leads to.
void Visit(const Model& model, const State& state, std::vector<State>* next) {
  const auto [inserts, samples, size] = state;
  const RateLimiter limiter = LimiterAt(model, state);
  const bool insert = limiter.CanInsert(size), sample = limiter.CanSample(size);
  ASSERT_TRUE(insert || sample) << inserts << " inserts, " << samples << " samples, size " << size;
  ASSERT_TRUE(!sample || size >= model.options.min_items);
  const double ratio = model.options.samples_per_insert;
  if (ratio > 0 && size >= model.options.min_items) {
    const double over = ratio * double(model.inserts.back() + model.options.min_items);
    ASSERT_GE(limiter.lead(), limiter.lower() - double(model.samples.back()));
    ASSERT_LE(limiter.lead(), limiter.upper() + over);
  }
  for (const std::int64_t n : model.inserts) {
    if (insert) next->push_back({inserts + n, samples, size + n});
  }
  for (const std::int64_t n : model.samples) {
    if (sample) next->push_back({inserts, samples + n, size});
  }
  if (size > model.capacity) next->push_back({inserts, samples, model.capacity});
}

void Explore(const Model& model) {
  constexpr std::int64_t kInsertsMax = 24;
  std::set<State> seen;
  std::vector<State> open = {{0, 0, 0}};
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    if (std::get<0>(state) > kInsertsMax || !seen.insert(state).second) continue;
    Visit(model, state, &open);
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_GT(seen.size(), 24u);
}

// acme 233, Reverb's documented combinations: inserts wait for samples that wait for inserts. Here
// every reachable state of small parameters lets one side go on, with requests larger than the
// band, a band of no width, and capacity trimming. Each request is taken whole, so a request of
// several batches is one of their sum.
TEST(RateLimiterTest, NeverBlocksBothSidesInAnyReachableState) {
  for (const double ratio : {0.0, 0.3, 1.0, 2.5}) {
    for (const double error : {0.0, 0.1, 1.0}) {
      for (const std::int64_t min_items : {1, 2, 7}) {
        for (const std::int64_t capacity : {min_items, min_items + 5}) {
          const Model model{{ratio, error, min_items}, capacity, {1, 6}, {1, 4, 20}};
          if (ratio == 0) {
            EXPECT_TRUE(Make(model.options).CanInsert(min_items));
            continue;  // the number of samples has no bound: nothing to explore
          }
          ASSERT_NO_FATAL_FAILURE(Explore(model));
        }
      }
    }
  }
}

TEST(RateLimiterTest, ImpossibleOptionsAreRefusedWithTheirValue) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const RateLimiter::Options& options :
       {RateLimiter::Options{.samples_per_insert = -1},
        {.samples_per_insert = kNan},
        {.samples_per_insert = std::numeric_limits<double>::infinity()},
        {.ratio_error = -0.1},
        {.ratio_error = kNan},
        {.ratio_error = std::numeric_limits<double>::infinity()},
        {.min_items = 0}}) {
    EXPECT_EQ(RateLimiter::Make(options).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace troop
