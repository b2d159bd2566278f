#include "paramserver/shard/sync_policy.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

using Verdict = SyncPolicy::Verdict;

SyncPolicy MakePolicy(SyncOptions options) {
  SyncPolicy policy(options);
  for (int i = 0; i < options.learners; ++i) policy.Join(i);
  return policy;
}

void Take(SyncPolicy* policy, std::int32_t learner, std::uint64_t id, std::uint64_t clock,
          Verdict want = Verdict::kAccepted) {
  const auto verdict = policy->Arrive({.learner = learner, .id = id, .clock = clock});
  ASSERT_TRUE(verdict.ok()) << verdict.status().ToString();
  ASSERT_EQ(int(*verdict), int(want));
}

TEST(SyncPolicyTest, BspWaitsForAllAndSumsInLearnerOrder) {
  SyncPolicy policy = MakePolicy({.learners = 3});
  for (std::uint64_t round = 0; round < 4; ++round) {
    const std::vector<std::vector<int>> orders{{2, 0, 1}, {0, 1, 2}, {1, 2, 0}, {2, 1, 0}};
    for (const int learner : orders[round]) {
      EXPECT_FALSE(policy.NextUpdate().has_value());
      Take(&policy, learner, round, round);
      EXPECT_EQ(policy.MayPull(learner), false);
    }
    const auto update = policy.NextUpdate();
    ASSERT_TRUE(update.has_value());
    EXPECT_EQ(policy.version(), round + 1);
    EXPECT_EQ(update->scale, 1.0f / 3);
    ASSERT_EQ(update->terms.size(), 3u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(update->terms[std::size_t(i)].learner, i);
      EXPECT_EQ(update->terms[std::size_t(i)].staleness, 0u);
      EXPECT_TRUE(policy.MayPull(i));
    }
    EXPECT_FALSE(policy.NextUpdate().has_value());
  }
}

TEST(SyncPolicyTest, UpdatesOnlyOnceAllHaveJoinedOrLeft) {
  for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kKOfN, SyncMode::kLocalSgd}) {
    SyncPolicy policy({.mode = mode, .learners = 3});
    policy.Join(0);
    policy.Join(2);
    Take(&policy, 0, 0, 0);
    Take(&policy, 2, 0, 0);
    EXPECT_FALSE(policy.NextUpdate().has_value());
    policy.Leave(1);  // it never came
    EXPECT_TRUE(policy.NextUpdate().has_value());
  }
}

TEST(SyncPolicyTest, DoesNotWaitForDepartedLearnerInAnyMode) {
  for (const SyncOptions& options :
       {SyncOptions{.mode = SyncMode::kBsp}, SyncOptions{.mode = SyncMode::kLocalSgd},
        SyncOptions{.mode = SyncMode::kKOfN, .k = 3}, SyncOptions{.mode = SyncMode::kSsp},
        SyncOptions{.mode = SyncMode::kSsp, .staleness = 2},
        SyncOptions{.mode = SyncMode::kAsync, .warm_start_updates = 1000}}) {
    SyncOptions three = options;
    three.learners = 3;
    SyncPolicy policy = MakePolicy(three);
    policy.Leave(0);
    for (std::uint64_t step = 0; step < 20; ++step) {
      for (const int learner : {1, 2}) {
        if (!policy.MayPull(learner)) continue;
        Take(&policy, learner, step, policy.version());
        while (policy.NextUpdate()) {
        }
      }
    }
    EXPECT_GE(policy.version(), 20u) << EnumName(options.mode);
    EXPECT_TRUE(policy.MayPull(1));
  }
}

TEST(SyncPolicyTest, KeepsPushOfLearnerThatDied) {
  SyncPolicy policy = MakePolicy({.learners = 2});
  Take(&policy, 1, 7, 0);
  policy.Leave(1);
  EXPECT_FALSE(policy.NextUpdate().has_value());
  Take(&policy, 0, 3, 0);
  EXPECT_EQ(policy.NextUpdate()->terms.size(), 2u);
  EXPECT_EQ(policy.Arrive({.learner = 1, .clock = 1}).status().code(), Code::kFailedPrecondition);
  policy.Join(1);
  Take(&policy, 1, 8, 0, Verdict::kLate);
  Take(&policy, 1, 9, 1);
  Take(&policy, 0, 4, 1);
  EXPECT_EQ(policy.NextUpdate()->terms.size(), 2u);
}

TEST(SyncPolicyTest, DroppedPushDoesNotBlockAndChangesNothing) {
  SyncPolicy bsp = MakePolicy({.learners = 2});
  Take(&bsp, 0, 0, 0);
  ASSERT_TRUE(bsp.Arrive({.learner = 1, .dropped = true}).ok());
  const auto update = bsp.NextUpdate();
  ASSERT_EQ(update->terms.size(), 1u);
  EXPECT_EQ(update->scale, 1);
  for (const int learner : {0, 1}) {
    ASSERT_TRUE(bsp.Arrive({.learner = learner, .clock = 1, .dropped = true}).ok());
  }
  EXPECT_TRUE(bsp.NextUpdate()->terms.empty());
  EXPECT_EQ(bsp.version(), 2u);

  SyncPolicy ssp = MakePolicy({.mode = SyncMode::kSsp, .learners = 2, .staleness = 1});
  ASSERT_TRUE(ssp.Arrive({.learner = 1, .dropped = true}).ok());
  EXPECT_FALSE(ssp.NextUpdate().has_value());
  for (const int step : {0, 1}) {
    Take(&ssp, 0, std::uint64_t(step), ssp.version());
    EXPECT_TRUE(ssp.NextUpdate().has_value());
  }
  EXPECT_TRUE(ssp.MayPull(0));  // 2 pushes; the other one has 1
}

TEST(SyncPolicyTest, RejectsMisuseWithRemedy) {
  SyncPolicy policy = MakePolicy({.learners = 2});
  EXPECT_EQ(policy.Arrive({.learner = 5}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(policy.Arrive({.learner = 0, .clock = 1}).status().code(), Code::kFailedPrecondition);
  Take(&policy, 0, 0, 0);
  const Status twice = policy.Arrive({.learner = 0, .id = 1}).status();
  EXPECT_EQ(twice.code(), Code::kFailedPrecondition);
  EXPECT_NE(twice.message().find("pull first"), std::string::npos);
  EXPECT_EQ(policy.held(), 1u);
  SyncPolicy ssp = MakePolicy({.mode = SyncMode::kSsp, .learners = 2, .staleness = 1});
  for (std::uint64_t i = 0; i < 2; ++i) {
    Take(&ssp, 0, i, i);
    ASSERT_TRUE(ssp.NextUpdate().has_value());
  }
  EXPECT_FALSE(ssp.MayPull(0));
  EXPECT_EQ(ssp.Arrive({.learner = 0, .id = 2}).status().code(), Code::kFailedPrecondition);
}

TEST(SyncPolicyTest, RejectsOptionsOfOtherModes) {
  EXPECT_TRUE(CheckSyncOptions({.mode = SyncMode::kKOfN, .learners = 4, .k = 4}).ok());
  for (const SyncOptions& bad :
       {SyncOptions{.learners = 0}, SyncOptions{.mode = SyncMode::kKOfN, .k = 0},
        SyncOptions{.mode = SyncMode::kKOfN, .learners = 3, .k = 4}, SyncOptions{.cancel = true},
        SyncOptions{.mode = SyncMode::kAsync, .per_batch = true}, SyncOptions{.staleness = 1},
        SyncOptions{.mode = SyncMode::kSsp, .warm_start_updates = 1},
        SyncOptions{.mode = SyncMode::kLocalSgd, .staleness_discount = true}}) {
    EXPECT_EQ(CheckSyncOptions(bad).code(), Code::kInvalidArgument);
  }
  for (int mode = 0; mode < 5; ++mode) {
    EXPECT_EQ(*ParseEnum<SyncMode>(EnumName(SyncMode(mode))), SyncMode(mode));
  }
  EXPECT_FALSE(ParseEnum<SyncMode>("bulk").has_value());
}

TEST(SyncPolicyTest, DampsStaleGradientsWhenConfigured) {
  SyncPolicy policy =
      MakePolicy({.mode = SyncMode::kAsync, .learners = 2, .staleness_discount = true});
  const std::vector<float> want{1, 1, 0.5f, 1 / 3.0f, 0.25f};
  for (std::uint64_t i = 0; i < want.size(); ++i) {
    Take(&policy, 0, i, 0);
    const auto update = policy.NextUpdate();
    EXPECT_EQ(update->terms[0].staleness, i);
    EXPECT_EQ(update->terms[0].weight, want[i]);
    EXPECT_EQ(update->scale, 1);
  }
}

TEST(SyncPolicyTest, WarmStartLetsFirstLearnerRunAlone) {
  SyncPolicy policy =
      MakePolicy({.mode = SyncMode::kAsync, .learners = 3, .warm_start_updates = 5});
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(policy.MayPull(0));
    EXPECT_FALSE(policy.MayPull(1));
    EXPECT_FALSE(policy.MayPull(2));
    Take(&policy, 0, i, i);
    ASSERT_TRUE(policy.NextUpdate().has_value());
  }
  EXPECT_TRUE(policy.MayPull(1) && policy.MayPull(2));
}

TEST(SyncPolicyTest, LocalSgdAveragesValues) {
  SyncPolicy policy = MakePolicy({.mode = SyncMode::kLocalSgd, .learners = 2});
  Take(&policy, 1, 0, 0);
  Take(&policy, 0, 0, 0);
  const auto update = policy.NextUpdate();
  EXPECT_TRUE(update->average_values);
  EXPECT_EQ(update->scale, 0.5f);
}

TEST(SyncPolicyTest, RestoredPolicyMakesSameDecisions) {
  const SyncOptions options{.mode = SyncMode::kSsp, .learners = 3, .staleness = 2};
  SyncPolicy first = MakePolicy(options);
  Rng rng({3, Purpose::kTest});
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto learner = std::int32_t(rng.Below(3));
    if (!first.MayPull(learner)) continue;
    Take(&first, learner, i, first.version());
    ASSERT_TRUE(first.NextUpdate().has_value());
    SyncPolicy restored(options);
    restored.Restore(first.version(), first.members());
    EXPECT_EQ(restored.version(), first.version());
    for (int l = 0; l < 3; ++l) EXPECT_EQ(restored.MayPull(l), first.MayPull(l));
  }
}

// Learners with random compute times; a learner that may not pull waits.
class Fleet {
 public:
  Fleet(SyncOptions options, std::function<double(int)> service)
      : policy_(MakePolicy(options)),
        service_(std::move(service)),
        learners_(std::size_t(options.learners)) {
    for (std::size_t i = 0; i < learners_.size(); ++i) Begin(i);
  }

  void RunUpdates(std::uint64_t updates) {
    while (policy_.version() < updates && !testing::Test::HasFatalFailure()) Step();
  }

  double now = 0;
  std::uint64_t late = 0, waits = 0;
  std::uint64_t gap_at_start = 0, gap = 0;  // the largest seen
  std::vector<std::uint64_t> staleness;
  const SyncPolicy& policy() const { return policy_; }

 private:
  struct Learner {
    double ready = 0;  // infinity: waits
    std::uint64_t clock = 0, pushes = 0;
  };

  void Step() {
    const auto next =
        std::size_t(std::ranges::min_element(learners_, {}, &Learner::ready) - learners_.begin());
    Learner& learner = learners_[next];
    now = learner.ready;
    ASSERT_LT(now, std::numeric_limits<double>::infinity()) << "all wait";
    const auto verdict = policy_.Arrive(
        {.learner = std::int32_t(next), .id = learner.pushes++, .clock = learner.clock});
    ASSERT_TRUE(verdict.ok()) << verdict.status().ToString();
    late += *verdict == Verdict::kLate;
    learner.ready = std::numeric_limits<double>::infinity();
    const std::uint64_t before = policy_.version();
    while (const auto update = policy_.NextUpdate()) {
      for (const auto& term : update->terms) staleness.push_back(term.staleness);
    }
    const bool cancelled = policy_.cancels() && policy_.version() > before;
    std::uint64_t most = 0;
    for (const auto& member : policy_.members()) most = std::max(most, member.clock);
    gap = std::max(gap, most - policy_.min_clock());
    for (std::size_t i = 0; i < learners_.size(); ++i) {
      const bool waits_now = std::isinf(learners_[i].ready);
      if (!waits_now && !cancelled) continue;
      if (policy_.MayPull(std::int32_t(i))) {
        Begin(i);
      } else if (i == next) {
        ++waits;
      }
    }
  }
  void Begin(std::size_t i) {
    learners_[i].clock = policy_.version();
    learners_[i].ready = now + service_(int(i));
    gap_at_start = std::max(gap_at_start, policy_.members()[i].clock - policy_.min_clock());
  }

  SyncPolicy policy_;
  std::function<double(int)> service_;
  std::vector<Learner> learners_;
};

double Mean(const std::vector<std::uint64_t>& values) {
  double sum = 0;
  for (const std::uint64_t v : values) sum += double(v);
  return sum / double(values.size());
}

// Zhang et al. 2016: n-softsync's mean staleness is about n, whatever the law of the service time.
// λ = 30: (λ - c) / c of an update's own c pushes; the values are those of an independent
// simulation. 20,000 updates; a run's mean is off by 2 % at most.
TEST(SyncPolicyTest, MeanStalenessOfSoftsyncIsAboutN) {
  for (const bool exponential : {false, true}) {
    for (const auto& [n, want] : std::vector<std::pair<int, double>>{
             {1, 0.97}, {2, 1.93}, {5, 4.83}, {10, 9.67}, {30, 29.0}}) {
      Rng rng({std::uint64_t(n), Purpose::kTest});
      Fleet fleet(
          {.mode = SyncMode::kKOfN, .learners = 30, .k = 30 / n, .per_batch = true},
          [&](int) { return exponential ? -std::log(1 - rng.Uniform()) : rng.Uniform(0.9, 1.1); });
      fleet.RunUpdates(std::uint64_t(200 * n + 500));
      EXPECT_NEAR(Mean(fleet.staleness), want, 0.02 * want + 0.01) << n << " " << exponential;
      EXPECT_EQ(fleet.late, 0u);
      if (!exponential) {
        EXPECT_LE(std::ranges::max(fleet.staleness), std::uint64_t(2 * n));
      }
    }
  }
}

// Dutta et al. 2018: the K-th of P exponential times is H_P - H_(P-K). The standard deviation of
// the mean of 20,000 is below 0.0088 (K = P = 8: 1.24 / 141): five of them.
TEST(SyncPolicyTest, KSyncTakesTimeOfKthLearner) {
  for (const auto& [k, want] :
       std::vector<std::pair<int, double>>{{1, 0.125}, {4, 0.6345}, {8, 2.7179}}) {
    Rng rng({std::uint64_t(k), Purpose::kTest});
    Fleet fleet({.mode = SyncMode::kKOfN, .learners = 8, .k = k, .cancel = true},
                [&](int) { return -std::log(1 - rng.Uniform()); });
    fleet.RunUpdates(20000);
    EXPECT_NEAR(fleet.now / 20000, want, 0.044) << k;
    EXPECT_EQ(std::ranges::max(fleet.staleness), 0u);
    EXPECT_EQ(fleet.late, 0u);  // cancelled, so never pushed
  }
}

TEST(SyncPolicyTest, KBatchAsyncIsNeverIdle) {
  for (const int k : {1, 4, 8}) {
    Rng rng({std::uint64_t(k), Purpose::kTest});
    Fleet fleet({.mode = SyncMode::kKOfN, .learners = 8, .k = k, .per_batch = true},
                [&](int) { return -std::log(1 - rng.Uniform()); });
    fleet.RunUpdates(20000);
    // A Poisson process of rate 8: standard deviation of the mean sqrt(k) / 8 / 141.
    EXPECT_NEAR(fleet.now / 20000, k / 8.0, 5 * std::sqrt(double(k)) / 8 / 141) << k;
    EXPECT_EQ(fleet.waits, 0u);
  }
}

TEST(SyncPolicyTest, KBatchSyncTakesSeveralOfFastLearnerAndDropsLate) {
  SyncPolicy policy = MakePolicy(
      {.mode = SyncMode::kKOfN, .learners = 2, .k = 3, .cancel = true, .per_batch = true});
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(policy.MayPull(0));
    Take(&policy, 0, i, 0);
  }
  EXPECT_EQ(policy.NextUpdate()->terms.size(), 3u);
  Take(&policy, 1, 0, 0, Verdict::kLate);
  EXPECT_EQ(policy.held(), 0u);
}

TEST(SyncPolicyTest, KAsyncTakesOnePushPerLearner) {
  SyncPolicy policy = MakePolicy({.mode = SyncMode::kKOfN, .learners = 3, .k = 2});
  Take(&policy, 2, 0, 0);
  EXPECT_FALSE(policy.MayPull(2));
  EXPECT_FALSE(policy.Arrive({.learner = 2, .id = 1}).ok());
  Take(&policy, 0, 0, 0);
  EXPECT_EQ(policy.NextUpdate()->scale, 0.5f);
  Take(&policy, 1, 0, 0);  // computed at the older version, and welcome
  Take(&policy, 2, 1, 1);
  const auto update = policy.NextUpdate();
  EXPECT_EQ(update->terms[0].staleness, 1u);
  EXPECT_EQ(update->terms[1].staleness, 0u);
}

// Ho et al. 2013: a learner that starts iteration c is at most s ahead of the slowest. A learner
// that has just pushed and waits may be s + 1 ahead.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSchedules = 2500;  // sanitizers take ten times as long
#else
constexpr std::uint64_t kSchedules = 25000;
#endif

TEST(SyncPolicyTest, SspBoundsGapInRandomSchedulesWithStraggler) {
  for (const std::uint64_t s : {0, 1, 3, 10}) {
    std::uint64_t widest = 0;
    for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
      Rng rng({seed, Purpose::kTest, s});
      const int learners = 2 + int(seed % 4);
      Fleet fleet({.mode = SyncMode::kSsp, .learners = learners, .staleness = s},
                  [&](int i) { return (i == 0 ? 5 : 1) * (0.2 + double(rng.UniformF32())); });
      fleet.RunUpdates(s == 0 ? 10 : 40);
      ASSERT_LE(fleet.gap_at_start, s) << "seed " << seed;
      ASSERT_LE(fleet.gap, s + 1) << "seed " << seed;
      widest = std::max(widest, fleet.gap);
    }
    // With s = 0 a clock's pushes count together.
    EXPECT_EQ(widest, s == 0 ? 0 : s + 1);
  }
}

TEST(SyncPolicyTest, SspToleratesDelayUpToItsBound) {
  for (const std::uint64_t s : {0, 3}) {
    int calls = 0;
    Fleet fleet({.mode = SyncMode::kSsp, .learners = 4, .staleness = s},
                [&](int i) { return i == 0 && ++calls == 5 ? 3.9 : 1.0 + 0.001 * i; });
    fleet.RunUpdates(s == 0 ? 20 : 80);
    EXPECT_EQ(fleet.waits > 0, s == 0);
  }
}

}  // namespace
}  // namespace troop
