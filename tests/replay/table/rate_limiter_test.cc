#include "replay/table/rate_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

RateLimiter Make(const RateLimiter::Options& options) {
  auto limiter = RateLimiter::Make(options);
  TROOP_CHECK(limiter.ok(), "{}", limiter.status().ToString());
  return *limiter;
}

TEST(RateLimiterTest, BlocksSamplesBelowMinItems) {
  RateLimiter limiter = Make({.samples_per_insert = 100, .min_items = 10});
  limiter.Inserted(9);
  EXPECT_FALSE(limiter.CanSample(9));
  limiter.Inserted(1);
  EXPECT_TRUE(limiter.CanSample(10));
}

TEST(RateLimiterTest, RatioZeroEnforcesOnlyMinItems) {
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
  RateLimiter limiter =
      Make({.samples_per_insert = 4, .samples_per_insert_tolerance_rate = 0.1, .min_items = 1000});
  limiter.Inserted(1000);
  std::int64_t samples = 0;
  for (; limiter.CanSample(1000); ++samples) limiter.Sampled(1);
  EXPECT_LE(samples, 401);  // half of the band, not the 4000 of 1000 inserts
}

// A table whose items became too old: 1000 that refilled it owed 8000 samples.
TEST(RateLimiterTest, RefillingShrunkTableCausesNoBurst) {
  RateLimiter limiter =
      Make({.samples_per_insert = 8, .samples_per_insert_tolerance_rate = 0.1, .min_items = 1000});
  limiter.Inserted(1000);
  limiter.Note(Time{}, false, false, 1000);
  for (std::int64_t size = 0; size < 1000; size += 10) {
    EXPECT_TRUE(limiter.CanInsert(size));
    limiter.Inserted(10);
    limiter.Note(Time{}, false, false, size + 10);
  }
  std::int64_t samples = 0;
  for (; limiter.CanSample(1000); ++samples) limiter.Sampled(1);
  EXPECT_LE(samples, 1601 + 80);  // the band and one request
  EXPECT_TRUE(limiter.CanInsert(1000));
}

TEST(RateLimiterTest, BandWidthMatchesRatioError) {
  // Middle 800, half of the band 100; each side ends with the request that leaves it.
  const RateLimiter::Options options{
      .samples_per_insert = 8, .samples_per_insert_tolerance_rate = 0.125, .min_items = 100};
  RateLimiter inserts = Make(options), samples = Make(options);
  inserts.Inserted(100);
  samples.Inserted(100);
  for (; inserts.CanInsert(100); inserts.Inserted(1)) {
  }
  for (; samples.CanSample(100); samples.Sampled(1)) {
  }
  EXPECT_EQ(inserts.inserts(), 100 + 13);
  EXPECT_EQ(samples.samples(), 101);
}

TEST(RateLimiterTest, KeepsRatioWhicheverSideIsFaster) {
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

// A fleet with requests of any size on one limiter. If both kinds are allowed, one is chosen at
// random.
struct Fleet {
  RateLimiter limiter;
  Rng rng;
  std::int64_t insert_max = 1, sample_max = 1;
  std::int64_t size = 0;
  bool Turn() {
    const bool insert = limiter.CanInsert(size), sample = limiter.CanSample(size);
    if (sample && (!insert || rng.Below(2) == 0)) {
      limiter.Sampled(1 + rng.Below(std::uint32_t(sample_max)));
    } else if (insert) {
      const std::int64_t items = 1 + rng.Below(std::uint32_t(insert_max));
      limiter.Inserted(items);
      size += items;
    }
    return insert || sample;
  }
};

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 31, .index = index}); }

RateLimiter::Options RandomOptions(Rng* rng) {
  const double kind = rng->Uniform();
  return {.samples_per_insert = kind < 0.1 ? 0 : std::exp(rng->Uniform(-5, 5)),
          .samples_per_insert_tolerance_rate = kind > 0.8 ? 0 : rng->Uniform(0, 1.5),
          .min_items = 1 + rng->Below(300)};
}

TEST(RateLimiterTest, KeepsRatioForAnyRequestSize) {
  Rng rng = TestRng(1);
  for (const double ratio : {0.1, 1.0, 8.0, 50.0}) {
    for (int round = 0; round < 5; ++round) {
      Fleet fleet{Make({.samples_per_insert = ratio, .min_items = 300}), TestRng(rng.NextU32()),
                  1 + rng.Below(400), 1 + rng.Below(4000)};
      while (fleet.limiter.inserts() < 200000 || fleet.limiter.samples() < 200000) {
        ASSERT_TRUE(fleet.Turn());
      }
      const RateLimiter& l = fleet.limiter;
      EXPECT_NEAR(double(l.samples()) / double(l.inserts() - 300) / ratio, 1, 0.02) << ratio;
    }
  }
}

// Random walks over everything that a server does, with requests far larger than the band, too.
TEST(RateLimiterTest, NeverBlocksBothSidesInRandomWalks) {
  Rng rng = TestRng(2);
  for (int round = 0; round < 300; ++round) {
    RateLimiter limiter = Make(RandomOptions(&rng));
    std::int64_t size = 0;
    for (int step = 0; step < 200; ++step) {
      const bool insert = limiter.CanInsert(size), sample = limiter.CanSample(size);
      ASSERT_TRUE(insert || sample) << "round " << round << " step " << step << " lead "
                                    << limiter.lead() << " of " << limiter.upper();
      ASSERT_TRUE(insert || size >= limiter.options().min_items);
      const auto some = [&rng](std::int64_t n) { return n == 0 ? 0 : rng.Below(std::uint32_t(n)); };
      const std::uint32_t what = rng.Below(100);
      const std::int64_t items = 1 + rng.Below(what % 3 == 0 ? 10000 : 30);
      if (what == 0) {
        ASSERT_TRUE(limiter.Reconfigure(RandomOptions(&rng), size).ok());
      } else if (what == 1) {
        limiter.Restore(limiter.inserts(), limiter.samples(), size);
      } else if (what < 5) {
        size = some(size);
      } else if (what < 20) {
        limiter.Deliver(some(limiter.reserved()));
      } else if (what < 25) {
        limiter.Release(some(limiter.reserved()));
      } else if (what < 60 && insert) {
        limiter.Inserted(items);
        size += items;
      } else if (sample) {
        limiter.Reserve(items);
      }
    }
  }
}

// Prefetching must not leave the error buffer, and samples that were not taken must not count
// (Reverb counts those that its client has prefetched).
TEST(RateLimiterTest, SamplesInFlightUseBandAndCountWhenTaken) {
  RateLimiter limiter =
      Make({.samples_per_insert = 1, .samples_per_insert_tolerance_rate = 0.1, .min_items = 100});
  limiter.Inserted(100);
  for (; limiter.CanSample(100); limiter.Reserve(1)) {
  }
  EXPECT_EQ(limiter.reserved(), 11);
  EXPECT_EQ(limiter.samples(), 0);
  limiter.Deliver(5);
  EXPECT_EQ(limiter.samples(), 5);
  EXPECT_FALSE(limiter.CanSample(100));
  limiter.Release(6);  // their receiver is gone
  EXPECT_EQ(limiter.reserved(), 0);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(limiter.CanSample(100));
    limiter.Sampled(1);
  }
  EXPECT_FALSE(limiter.CanSample(100));
  EXPECT_EQ(limiter.samples(), 11);
}

// How many samples go through before inserts are needed, and the other way round.
std::int64_t SamplesAtOnce(RateLimiter limiter, std::int64_t size) {
  std::int64_t samples = 0;
  for (; limiter.CanSample(size); ++samples) limiter.Sampled(1);
  return samples;
}
std::int64_t InsertsAtOnce(RateLimiter limiter, std::int64_t size) {
  std::int64_t inserts = 0;
  for (; limiter.CanInsert(size + inserts); ++inserts) limiter.Inserted(1);
  return inserts;
}

TEST(RateLimiterTest, NewRatioAppliesWithoutBurstOrStall) {
  for (const double ratio : {0.0, 0.5, 32.0}) {
    Fleet fleet{Make({.samples_per_insert = ratio, .min_items = 100}), TestRng(3), 20, 20};
    while (fleet.limiter.inserts() < 20000) ASSERT_TRUE(fleet.Turn());
    RateLimiter& limiter = fleet.limiter;
    ASSERT_TRUE(limiter.Reconfigure({.samples_per_insert = 4, .min_items = 100}, fleet.size).ok());
    EXPECT_LE(SamplesAtOnce(limiter, fleet.size), 81);  // the band: 400 ± 40
    EXPECT_LE(InsertsAtOnce(limiter, fleet.size), 21);
    const std::int64_t inserts = limiter.inserts(), samples = limiter.samples();
    while (limiter.inserts() < inserts + 20000) ASSERT_TRUE(fleet.Turn());
    const double reached =
        double(limiter.samples() - samples) / double(limiter.inserts() - inserts);
    EXPECT_NEAR(reached / 4, 1, 0.02) << "after " << ratio;
  }
}

TEST(RateLimiterTest, ReconfigureKeepsLeadWithinNewBand) {
  RateLimiter limiter =
      Make({.samples_per_insert = 1, .samples_per_insert_tolerance_rate = 0.5, .min_items = 100});
  limiter.Inserted(100);
  limiter.Sampled(10);  // 10 ahead of the middle
  ASSERT_TRUE(
      limiter
          .Reconfigure(
              {.samples_per_insert = 2, .samples_per_insert_tolerance_rate = 0.1, .min_items = 100},
              100)
          .ok());
  EXPECT_EQ(limiter.lead(), 190);
  ASSERT_TRUE(limiter
                  .Reconfigure({.samples_per_insert = 2,
                                .samples_per_insert_tolerance_rate = 0.01,
                                .min_items = 100},
                               100)
                  .ok());
  EXPECT_EQ(limiter.lead(), 198);  // as far as the band reaches
}

TEST(RateLimiterTest, FillingToNewMinItemsIsNotCharged) {
  RateLimiter limiter = Make({.samples_per_insert = 8, .min_items = 100});
  limiter.Inserted(60);  // still filling
  ASSERT_TRUE(limiter.Reconfigure({.samples_per_insert = 8, .min_items = 50}, 60).ok());
  EXPECT_LE(SamplesAtOnce(limiter, 60), 41);
  limiter.Sampled(20);
  ASSERT_TRUE(limiter.Reconfigure({.samples_per_insert = 8, .min_items = 1000}, 60).ok());
  EXPECT_FALSE(limiter.CanSample(60));
  limiter.Inserted(940);
  EXPECT_LE(SamplesAtOnce(limiter, 1000), 1601);
  EXPECT_GT(SamplesAtOnce(limiter, 1000), 0);
}

TEST(RateLimiterTest, RejectedReconfigureChangesNothing) {
  RateLimiter limiter = Make({.samples_per_insert = 8, .min_items = 10});
  limiter.Inserted(17);
  EXPECT_EQ(limiter.Reconfigure({.samples_per_insert = -2}, 17).code(), Code::kInvalidArgument);
  EXPECT_EQ(limiter.options().samples_per_insert, 8);
  EXPECT_EQ(limiter.lead(), 136);
}

TEST(RateLimiterTest, RestoredLimiterContinuesWithoutBurst) {
  RateLimiter limiter = Make({.samples_per_insert = 8, .min_items = 100});
  limiter.Restore(100000, 799200, 5000);  // in the middle
  EXPECT_EQ(limiter.inserts(), 100000);
  EXPECT_EQ(limiter.samples(), 799200);
  EXPECT_EQ(limiter.lead(), 800);
  limiter.Restore(100000, 700000, 5000);  // much was in flight, and is lost
  EXPECT_LE(SamplesAtOnce(limiter, 5000), 161);
  limiter.Restore(100000, 900000, 5000);
  EXPECT_LE(InsertsAtOnce(limiter, 5000), 21);
  limiter.Restore(100000, 799200, 0);  // the items are gone: filling up is free again
  limiter.Inserted(100);
  EXPECT_EQ(limiter.lead(), 800);
  limiter.Restore(60, 0, 60);  // it was still filling
  limiter.Inserted(40);
  EXPECT_EQ(limiter.lead(), 800);
}

TEST(RateLimiterTest, CountsBlockedTimeByReason) {
  using Reason = RateLimiter::Reason;
  const auto at = [](std::int64_t ms) { return Time{} + Milliseconds(ms); };
  RateLimiter limiter =
      Make({.samples_per_insert = 1, .samples_per_insert_tolerance_rate = 0.1, .min_items = 100});
  limiter.Note(at(1000), false, true, 0);
  EXPECT_EQ(limiter.sample_blocked().reason, Reason::kBelowMinItems);
  EXPECT_EQ(limiter.Explain(at(1500), 0), "samples wait for 0.5 s: 0 of min_items 100 items");
  limiter.Inserted(100);
  limiter.Note(at(3000), false, false, 100);
  EXPECT_EQ(limiter.Explain(at(3000), 100), "no side waits");
  limiter.Note(at(4000), false, false, 100);
  limiter.Inserted(50);
  limiter.Note(at(5000), true, false, 150);
  EXPECT_EQ(limiter.insert_blocked().reason, Reason::kRatio);
  limiter.Note(at(5500), true, false, 150);
  EXPECT_EQ(limiter.insert_blocked().since, at(5000));
  EXPECT_EQ(limiter.Explain(at(6000), 150),
            "inserts wait for 1.0 s: 150 allowed samples are not taken, at most 110 may be");
  limiter.Reserve(70);
  limiter.Note(at(6500), true, true, 150);  // something else keeps the inserts
  EXPECT_EQ(limiter.insert_blocked().reason, Reason::kTable);
  EXPECT_EQ(limiter.sample_blocked().reason, Reason::kRatio);
  EXPECT_EQ(
      limiter.Explain(at(6500), 150),
      "inserts wait for 0.0 s: the table accepts none now; samples wait for 0.0 s: 80 allowed "
      "samples are not taken, at least 90 must be (70 in flight)");
  limiter.Note(at(7500), false, false, 150);
  Metrics metrics;
  limiter.ReportBlocked("replay/", &metrics);
  EXPECT_EQ(metrics.Get("replay/insert_blocked_ratio_s"), 1.5);
  EXPECT_EQ(metrics.Get("replay/insert_blocked_table_s"), 1);
  EXPECT_EQ(metrics.Get("replay/insert_blocked_s"), 2.5);
  EXPECT_EQ(metrics.Get("replay/sample_blocked_min_items_s"), 2);
  EXPECT_EQ(metrics.Get("replay/sample_blocked_ratio_s"), 1);
  EXPECT_EQ(metrics.Get("replay/sample_blocked_s"), 3);
}

TEST(RateLimiterTest, RejectsInvalidOptions) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const RateLimiter::Options& options :
       {RateLimiter::Options{.samples_per_insert = -1},
        {.samples_per_insert = kNan},
        {.samples_per_insert = std::numeric_limits<double>::infinity()},
        {.samples_per_insert_tolerance_rate = -0.1},
        {.samples_per_insert_tolerance_rate = kNan},
        {.samples_per_insert_tolerance_rate = std::numeric_limits<double>::infinity()},
        {.samples_per_insert = 1e300, .min_items = 1 << 20},
        {.samples_per_insert = 1e12, .samples_per_insert_tolerance_rate = 1, .min_items = 10000},
        {.min_items = 0}}) {
    EXPECT_EQ(RateLimiter::Make(options).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace troop
