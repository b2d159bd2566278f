#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/log.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/simulated_fleet.h"

namespace troop::simulation {
namespace {

void Quiet() { InitLog({.role = "simulation", .file = "/dev/null", .level = LogLevel::kError}); }

std::string Course(const Plan& plan) {
  std::string text;
  for (const Fault& fault : plan.faults) text += "\n  " + ToString(fault);
  return text;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSeeds = 1;  // sanitizers are ten times slower
constexpr double kHours = 0.1;
#else
constexpr int kSeeds = 5;
constexpr double kHours = 0.5;
#endif

// Five seeds per test, so that tests run in parallel, and half an hour for each seed: of fifty
// seeds with faults, and of twenty with scaling in addition. Half of them are slow tests.
class HoursTest : public testing::TestWithParam<int> {
 protected:
  static void LoseNothingAndNeverStall(int first) {
    Quiet();
    for (int i = 0; i < kSeeds; ++i) {
      const Plan plan = MakePlan(std::uint64_t(1 + first + i), kHours);
      const Outcome outcome = Live(plan);
      ASSERT_EQ(outcome.breach, "") << "seed " << plan.seed << "; tools/simulate --first-seed "
                                    << plan.seed << " --seeds 1 shrinks it" << Course(plan);
      // Enough must have happened for the test to be meaningful.
      EXPECT_GE(double(outcome.messages), 10'000 * kHours);
      EXPECT_GE(outcome.faults, int(20 * kHours));
      EXPECT_GE(outcome.ended, Time{} + Seconds(3000 * kHours));
      EXPECT_GE(double(outcome.updates), 1000 * kHours);
      const bool sharded = plan.config.learner.sync == LearnerSync::kParamServer;
      EXPECT_GE(double(outcome.moves), sharded ? 6 * kHours : 0);
      EXPECT_GE(double(outcome.gradients), sharded ? 1000 * kHours : 0);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, HoursTest, testing::Range(0, 5));

TEST_P(HoursTest, LosesNothingAcknowledgedAndNeverStalls) {
  LoseNothingAndNeverStall(5 * GetParam());
}
TEST_P(HoursTest, SlowSeedsLoseNothingAcknowledgedAndNeverStall) {
  LoseNothingAndNeverStall(5 * (5 + GetParam()));
}

// Scaling of actors, replay shards and learners, in addition to faults.
class ScaledHoursTest : public testing::TestWithParam<int> {
 protected:
  static void LoseNothingAndNeverStall(int first) {
    Quiet();
    for (int i = 0; i < kSeeds; ++i) {
      const Plan plan = MakeScaledPlan(std::uint64_t(1 + first + i), kHours);
      const Outcome outcome = Live(plan);
      ASSERT_EQ(outcome.breach, "") << "seed " << plan.seed << Course(plan);
      EXPECT_GE(double(outcome.moves), 8 * kHours);
      EXPECT_GE(double(outcome.updates), 300 * kHours);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, ScaledHoursTest, testing::Range(0, 2));

TEST_P(ScaledHoursTest, ScalingLosesNothingAcknowledgedAndNeverStalls) {
  LoseNothingAndNeverStall(5 * GetParam());
}
TEST_P(ScaledHoursTest, SlowSeedsOfScalingLoseNothingAcknowledgedAndNeverStall) {
  LoseNothingAndNeverStall(5 * (2 + GetParam()));
}

TEST(SimulationTest, UnrollsLoseNothingAcknowledgedAndNeverStall) {
  Quiet();
  for (const std::uint64_t seed : {1u, 2u}) {
    const Plan plan = MakeUnrollPlan(seed, kHours);
    const Outcome outcome = Live(plan);
    ASSERT_EQ(outcome.breach, "") << "seed " << plan.seed << Course(plan);
    EXPECT_GE(outcome.faults, int(20 * kHours));
    EXPECT_GE(outcome.ended, Time{} + Seconds(3000 * kHours));
    EXPECT_GE(double(outcome.updates), 1000 * kHours);
  }
}

TEST(SimulationTest, ScalingWithoutFaultsAcknowledgesAllItems) {
  Quiet();
  Plan plan = MakeScaledPlan(2, 0.1);
  std::erase_if(plan.faults, [](const Fault& f) {
    return f.kind != Fault::kScale || f.role == "actors";  // a leaving actor drops its rest
  });
  const Outcome outcome = Live(plan);
  EXPECT_EQ(outcome.breach, "");
  EXPECT_GT(outcome.moves, 2);
  EXPECT_EQ(outcome.items, outcome.acknowledged);
}

// Checks that the largest and the smallest share of work are near the mean.
void ExpectFair(const std::vector<std::int64_t>& items, double tolerance, const char* of) {
  ASSERT_FALSE(items.empty());
  std::int64_t sum = 0;
  for (const std::int64_t n : items) sum += n;
  const double mean = double(sum) / double(items.size());
  const auto [least, most] = std::ranges::minmax(items);
  EXPECT_GE(double(least), (1 - tolerance) * mean) << of;
  EXPECT_LE(double(most), (1 + tolerance) * mean) << of;
}

void LiveLarge(std::int64_t actors, std::int64_t shards, std::int64_t learners, double steps) {
  Quiet();
  const Plan plan = MakeLargePlan(actors, shards, learners, steps);
  const Outcome outcome = Live(plan);
  std::printf(
      "%lld actors, %lld shards, %lld learners: %.1f virtual s, %llu messages, at most %zu "
      "wait, %llu updates\n",
      static_cast<long long>(actors), static_cast<long long>(shards),
      static_cast<long long>(learners), ToSeconds(outcome.ended - Time{}),
      static_cast<unsigned long long>(outcome.messages), outcome.waiting_max,
      static_cast<unsigned long long>(outcome.updates));
  EXPECT_EQ(outcome.breach, "");
  EXPECT_EQ(outcome.restarts, 0);
  EXPECT_EQ(outcome.items, outcome.acknowledged);
  EXPECT_GT(outcome.updates, 0u);
  EXPECT_EQ(outcome.items_of_actor.size(), std::size_t(actors));
  EXPECT_EQ(outcome.items_of_shard.size(), std::size_t(shards));
  ExpectFair(outcome.items_of_shard, 0.25, "items of a shard");
  ExpectFair(outcome.items_of_actor, 0.75, "items of an actor");
}

TEST(LargeFleetTest, HundredsOfActorsKeepGuaranteesAndFairShares) { LiveLarge(300, 10, 4, 64); }
TEST(LargeFleetTest, SlowTenThousandActorsKeepGuaranteesAndFairShares) {
  LiveLarge(10000, 100, 64, 24);
}

TEST(SimulationTest, SamePlanGivesSameHash) {
  Quiet();
  for (const std::uint64_t seed : {101u, 102u}) {
    const Plan plan = MakePlan(seed, 0.2 * kHours);
    const Outcome first = Live(plan), again = Live(plan);
    EXPECT_EQ(first.hash, again.hash);
    EXPECT_EQ(first.messages, again.messages);
    Plan other = plan;
    other.seed += 2;
    EXPECT_NE(Live(other).hash, first.hash);
  }
}

TEST(SimulationTest, RunWithoutFaultsAcknowledgesAllItems) {
  Quiet();
  Plan plan = MakePlan(7, 0.1);
  plan.faults.clear();
  const Outcome outcome = Live(plan);
  EXPECT_EQ(outcome.breach, "");
  EXPECT_EQ(outcome.restarts, 0);
  EXPECT_EQ(outcome.items, outcome.acknowledged);
  EXPECT_EQ(outcome.steps, std::int64_t(plan.config.run.total_steps));
}

// ---- The checker detects violations ------------------------------------------------------------

class CheckerTest : public testing::Test {
 protected:
  using E = HistoryEvent;
  static E Item(E::What what, std::uint64_t frame) { return {what, 8, frame, 3, 0}; }
  // All the way.
  void Put(std::uint64_t frame) {
    actor_->Note(Item(E::kSent, frame));
    replay_->Note(Item(E::kInserted, frame));
    actor_->Note(Item(E::kAcknowledged, frame));
  }
  bool Saw(std::string_view what) const {
    return checker_.breach().find(what) != std::string::npos;
  }

  Checker checker_{1, true};
  EventHistory* actor_ = checker_.Of("actor", false, 0);
  EventHistory* replay_ = checker_.Of("replay", true, 0);
};

TEST_F(CheckerTest, AcceptsRestoredLog) {
  for (std::uint64_t frame = 0; frame < 10; ++frame) Put(frame);
  checker_.ShardDied(0);
  for (std::uint64_t frame = 0; frame < 10; ++frame) replay_->Note(Item(E::kRestored, frame));
  checker_.ShardIsBack(0);
  Put(10);
  EXPECT_EQ(checker_.breach(), "");
}

TEST_F(CheckerTest, DetectsItemThatWasNotRestored) {
  for (std::uint64_t frame = 0; frame < 10; ++frame) Put(frame);
  checker_.ShardDied(0);
  for (std::uint64_t frame = 1; frame < 10; ++frame) replay_->Note(Item(E::kRestored, frame));
  checker_.ShardIsBack(0);
  EXPECT_TRUE(Saw("was not restored")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsItemInsertedTwice) {
  Put(1);
  replay_->Note(Item(E::kInserted, 1));
  EXPECT_TRUE(Saw("inserted twice")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsAcknowledgementBeforeInsert) {
  actor_->Note(Item(E::kSent, 1));
  actor_->Note(Item(E::kAcknowledged, 1));
  EXPECT_TRUE(Saw("never inserted")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsItemThatWasNeverSent) {
  replay_->Note(Item(E::kInserted, 1));
  EXPECT_TRUE(Saw("no actor sent it")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsDropFromDurableLog) {
  actor_->Note(Item(E::kSent, 1));
  replay_->Note(Item(E::kDropped, 1));
  EXPECT_TRUE(Saw("was dropped")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsOlderWeights) {
  actor_->Note({.what = E::kReceived, .version = 5});
  actor_->Note({.what = E::kReceived, .version = 5});
  EXPECT_EQ(checker_.breach(), "");
  actor_->Note({.what = E::kReceived, .version = 4});
  EXPECT_TRUE(Saw("received weights")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsOlderCheckpoint) {
  actor_->Note({.what = E::kCheckpointed, .version = 50});
  actor_->Note({.what = E::kCheckpointed, .version = 40});
  EXPECT_TRUE(Saw("checkpoint")) << checker_.breach();
}

TEST_F(CheckerTest, DetectsResumeFromOlderCheckpoint) {
  EventHistory* const first = checker_.Of("learner", false, 0);
  EventHistory* const second = checker_.Of("learner", false, 0);
  first->Note({.what = E::kCheckpointed, .version = 50});
  first->Note({.what = E::kCheckpointed, .version = 60});
  second->Note({.what = E::kResumed, .version = 60});
  EXPECT_EQ(checker_.breach(), "");
  second->Note({.what = E::kCheckpointed, .version = 70});
  checker_.Of("learner", false, 0)->Note({.what = E::kResumed, .version = 60});
  EXPECT_TRUE(Saw("resumes from 60 updates")) << checker_.breach();
}

class GradientsTest : public testing::Test {
 protected:
  using E = HistoryEvent;
  static constexpr std::uint64_t kCourse = 3;
  void Serve(EventHistory* who, std::uint64_t version, std::uint64_t lineage = kCourse,
             std::uint64_t epoch = 1) {
    who->Note({.what = E::kServed, .version = version, .epoch = epoch, .lineage = lineage});
  }
  void Apply(EventHistory* who, std::uint64_t push, std::uint64_t version,
             std::uint64_t lineage = kCourse) {
    who->Note({.what = E::kApplied,
               .stream = 1,
               .first_frame = push,
               .version = version,
               .epoch = 1,
               .lineage = lineage,
               .incarnation = 9});
  }
  bool Saw(std::string_view what) const {
    return checker_.breach().find(what) != std::string::npos;
  }

  Checker checker_{1, true};
  EventHistory* primary_ = checker_.Of("primary", false, 0);
  EventHistory* backup_ = checker_.Of("backup", false, 0);
};

TEST_F(GradientsTest, AcceptsFailoverWithoutLoss) {
  Serve(primary_, 1);
  Apply(primary_, 1, 2);
  Serve(backup_, 2);
  Apply(backup_, 2, 3);
  EXPECT_EQ(checker_.breach(), "");
  EXPECT_EQ(checker_.applied(), 2);
}

TEST_F(GradientsTest, DetectsFailoverThatLosesUpdates) {
  Serve(primary_, 1);
  Apply(primary_, 1, 2);
  Serve(backup_, 1);
  EXPECT_TRUE(Saw("was acknowledged at version 2")) << checker_.breach();
}

TEST_F(GradientsTest, DetectsGradientAppliedTwice) {
  Serve(primary_, 1);
  Apply(primary_, 1, 2);
  Serve(backup_, 2);
  Apply(backup_, 1, 3);
  EXPECT_TRUE(Saw("at version 2 and at 3")) << checker_.breach();
}

TEST_F(GradientsTest, AcceptsShardRestoredFromOlderSnapshot) {
  Serve(primary_, 1);
  Apply(primary_, 1, 2);
  Apply(primary_, 2, 3);
  Serve(primary_, 2, kCourse + 1);
  Apply(primary_, 2, 3, kCourse + 1);
  EXPECT_EQ(checker_.breach(), "");
  Apply(primary_, 1, 4, kCourse + 1);  // was contained in the restored state
  EXPECT_TRUE(Saw("push 1 of learner 1")) << checker_.breach();
}

TEST_F(GradientsTest, DetectsOlderCourse) {
  Serve(primary_, 1);
  Serve(backup_, 1, kCourse - 1);
  EXPECT_TRUE(Saw("on lineage 2, after 3")) << checker_.breach();
}

}  // namespace
}  // namespace troop::simulation
