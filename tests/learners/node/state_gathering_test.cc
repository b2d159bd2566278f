#include "learners/node/state_gathering.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(StateGatheringTest, RequestLastsUntilStateIsGathered) {
  StateGathering gathering(true, Seconds(5));
  EXPECT_FALSE(gathering.wanted());
  gathering.Request();
  EXPECT_TRUE(gathering.wanted());
  EXPECT_FALSE(gathering.TakeGathered());
  gathering.NoteGathered();
  EXPECT_FALSE(gathering.wanted());
  EXPECT_TRUE(gathering.TakeGathered());
  EXPECT_FALSE(gathering.TakeGathered());
}

TEST(StateGatheringTest, StopWaitsForStateGatheredAfterIt) {
  StateGathering gathering(true, Seconds(5));
  gathering.NoteGathered();  // before the stop: too old
  EXPECT_TRUE(gathering.StopAwaits(Time(Seconds(1)), {}));
  EXPECT_TRUE(gathering.wanted());
  gathering.NoteGathered();
  EXPECT_FALSE(gathering.StopAwaits(Time(Seconds(2)), {}));
  EXPECT_FALSE(gathering.wanted());
}

TEST(StateGatheringTest, StopWaitIsLimited) {
  StateGathering gathering(true, Seconds(5));
  EXPECT_TRUE(gathering.StopAwaits(Time(Seconds(1)), {}));
  EXPECT_TRUE(gathering.StopAwaits(Time(Seconds(5)), {}));
  EXPECT_FALSE(gathering.StopAwaits(Time(Seconds(6)), {}));
}

TEST(StateGatheringTest, StopDoesNotWaitForAbsentRanks) {
  StateGathering gathering(true, Seconds(5));
  EXPECT_FALSE(gathering.StopAwaits(Time(Seconds(1)), {.in_step = false}));
}

TEST(StateGatheringTest, OnlyLeaderRequestsStateAtStop) {
  StateGathering gathering(true, Seconds(5));
  EXPECT_TRUE(gathering.StopAwaits(Time(Seconds(1)), {.is_leader = false}));
  EXPECT_FALSE(gathering.wanted());
}

TEST(StateGatheringTest, CompleteStateIsNeverAwaited) {
  StateGathering gathering(false, Seconds(5));
  EXPECT_FALSE(gathering.StopAwaits(Time(Seconds(1)), {}));
  EXPECT_FALSE(gathering.wanted());
}

}  // namespace
}  // namespace troop
