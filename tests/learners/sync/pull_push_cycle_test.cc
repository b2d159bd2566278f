#include "learners/sync/pull_push_cycle.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

class PullPushCycleTest : public testing::Test {
 protected:
  using Action = PullPushCycle::Action;
  using State = PullPushCycle::State;
  using Situation = PullPushCycle::Situation;

  // Makes a cycle that has pulled, computed and pushed one batch.
  static PullPushCycle AfterOneBatch(const PullPushCycle::Options& options) {
    PullPushCycle cycle(options);
    EXPECT_EQ(cycle.Next(kStart, kPullNeeded), Action::kPull);
    cycle.PullRequested();
    EXPECT_EQ(cycle.state(), State::kPulling);
    cycle.PullTaken();
    cycle.ComputeStarted();
    cycle.Computed(true);
    EXPECT_EQ(cycle.state(), State::kPushing);
    EXPECT_TRUE(cycle.Pushed());
    EXPECT_EQ(cycle.state(), State::kRest);
    return cycle;
  }

  static constexpr Time kStart{Seconds(1)};
  static constexpr Situation kBatch{.has_batch = true, .has_jobs = true};
  static constexpr Situation kPullNeeded{.has_batch = true, .has_jobs = true, .wants_pull = true};
};

TEST_F(PullPushCycleTest, FirstBatchPullsAndLaterOnesPullWhenReplicaRequiresIt) {
  PullPushCycle cycle({});
  EXPECT_EQ(cycle.Next(kStart, kBatch), Action::kPull) << "it never joined";
  cycle = AfterOneBatch({});
  EXPECT_EQ(cycle.Next(kStart, kBatch), Action::kCompute);
  EXPECT_EQ(cycle.Next(kStart, kPullNeeded), Action::kPull);
}

TEST_F(PullPushCycleTest, LeavesAfterPatienceWithoutBatch) {
  PullPushCycle cycle = AfterOneBatch({.patience = Seconds(1)});
  EXPECT_EQ(cycle.patience_end(), kForever);
  EXPECT_EQ(cycle.Next(kStart, {}), Action::kWait);
  EXPECT_EQ(cycle.patience_end(), kStart + Seconds(1));
  EXPECT_EQ(cycle.Next(kStart + Milliseconds(999), {}), Action::kWait);
  EXPECT_EQ(cycle.Next(kStart + Seconds(1), {.has_open_pushes = true}), Action::kWait);
  EXPECT_EQ(cycle.Next(kStart + Seconds(1), {}), Action::kLeave);
  cycle.LeaveRequested();
  EXPECT_EQ(cycle.state(), State::kLeaving);
  cycle.Left();
  EXPECT_EQ(cycle.Next(kStart + Seconds(2), {}), Action::kWait);
  EXPECT_EQ(cycle.Next(kStart + Seconds(3), kBatch), Action::kPull) << "it joins again";
}

TEST_F(PullPushCycleTest, BatchOrUncollectedJobEndsPatience) {
  PullPushCycle cycle = AfterOneBatch({});
  EXPECT_EQ(cycle.Next(kStart, {}), Action::kWait);
  EXPECT_EQ(cycle.Next(kStart + Milliseconds(500), {.has_jobs = true}), Action::kWait);
  EXPECT_EQ(cycle.patience_end(), kForever);
}

TEST_F(PullPushCycleTest, CompleteRunLeavesAtOnce) {
  PullPushCycle cycle = AfterOneBatch({});
  EXPECT_EQ(cycle.Next(kStart, {.complete = true}), Action::kLeave);
}

TEST_F(PullPushCycleTest, FlushesStepsBeforeLeavingWhenTheyWouldBeLost) {
  const Situation steps{.wants_flush = true, .complete = true};
  PullPushCycle cycle = AfterOneBatch({});
  EXPECT_EQ(cycle.Next(kStart, steps), Action::kLeave) << "they are kept in the replica";
  cycle.SetExhausted(true);
  EXPECT_EQ(cycle.Next(kStart, steps), Action::kFlush);
  cycle.FlushStarted();
  EXPECT_EQ(cycle.state(), State::kFlushing);
  EXPECT_FALSE(cycle.Pushed()) << "no batch is done by it";
  cycle = AfterOneBatch({.pull_overwrites = true});
  EXPECT_EQ(cycle.Next(kStart, steps), Action::kFlush);
}

TEST_F(PullPushCycleTest, ExhaustedLeaderPullsWhatItHasPushed) {
  PullPushCycle cycle = AfterOneBatch({.is_leader = true});
  cycle.SetExhausted(true);
  EXPECT_EQ(cycle.Next(kStart, {}), Action::kPull);
  cycle.PullRequested();
  cycle.PullTaken();
  EXPECT_FALSE(cycle.Finished());
  EXPECT_EQ(cycle.Next(kStart, {}), Action::kLeave);
  cycle.LeaveRequested();
  cycle.Left();
  EXPECT_TRUE(cycle.Finished());
  EXPECT_EQ(cycle.Next(kStart, {}), Action::kWait);
}

TEST_F(PullPushCycleTest, LeaderThatNeverJoinedOwesOnePull) {
  PullPushCycle follower({}), leader({.is_leader = true});
  for (PullPushCycle* cycle : {&follower, &leader}) cycle->SetExhausted(true);
  EXPECT_TRUE(follower.Finished());
  EXPECT_FALSE(leader.Finished());
  EXPECT_EQ(leader.Next(kStart, {}), Action::kPull);
  leader.Deregister();
  EXPECT_TRUE(leader.Finished());
  EXPECT_EQ(leader.Next(kStart, {}), Action::kWait);
}

// A leader that left before its last batch has not seen what the others made since then.
TEST_F(PullPushCycleTest, LeaderThatLeftEarlyOwesPullAtTheEnd) {
  PullPushCycle cycle = AfterOneBatch({.is_leader = true});
  cycle.LeaveRequested();
  cycle.Left();
  EXPECT_FALSE(cycle.OwesFinalPull());
  cycle.SetExhausted(true);
  EXPECT_TRUE(cycle.OwesFinalPull());
}

TEST_F(PullPushCycleTest, PauseComesBeforeBatchesAndIsConfirmedAfterLeaving) {
  PullPushCycle cycle = AfterOneBatch({.is_leader = true});
  cycle.SetExhausted(true);
  Situation pause = kBatch;
  pause.pause_requested = true;
  EXPECT_EQ(cycle.Next(kStart, pause), Action::kLeave) << "no final pull during a resharding";
  cycle.LeaveRequested();
  cycle.Left();
  pause.has_paused = true;
  EXPECT_EQ(cycle.Next(kStart, pause), Action::kConfirmPause);
  EXPECT_EQ(PullPushCycle({}).Next(kStart, {.pause_requested = true}), Action::kLeave)
      << "also without a join";
}

TEST_F(PullPushCycleTest, AbandonDropsPayloadAndKeepsLeaving) {
  PullPushCycle cycle({});
  cycle.PullRequested();
  EXPECT_FALSE(cycle.Abandon());
  EXPECT_EQ(cycle.state(), State::kRest);
  cycle.ComputeStarted();
  cycle.Computed(true);
  EXPECT_TRUE(cycle.Abandon());
  EXPECT_EQ(cycle.state(), State::kRest);
  cycle.LeaveRequested();
  EXPECT_FALSE(cycle.Abandon());
  EXPECT_EQ(cycle.state(), State::kLeaving);
}

}  // namespace
}  // namespace troop
