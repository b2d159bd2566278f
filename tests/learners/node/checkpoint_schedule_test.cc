#include "learners/node/checkpoint_schedule.h"

#include <gtest/gtest.h>

#include <string>

namespace troop {
namespace {

TEST(CheckpointScheduleTest, IsDueOncePerInterval) {
  CheckpointSchedule schedule(2);
  EXPECT_FALSE(schedule.Poll(Time(Seconds(10))));
  EXPECT_EQ(schedule.next(), Time(Seconds(12)));
  EXPECT_FALSE(schedule.Poll(Time(Seconds(11))));
  EXPECT_TRUE(schedule.Poll(Time(Seconds(12))));
  EXPECT_TRUE(schedule.Poll(Time(Seconds(13))));  // until it is restarted
  schedule.Restart(Time(Seconds(13)));
  EXPECT_FALSE(schedule.Poll(Time(Seconds(14))));
  EXPECT_TRUE(schedule.Poll(Time(Seconds(15))));
}

TEST(CheckpointScheduleTest, NeverIsDueWithoutInterval) {
  for (const double every_s : {0.0, 1e12}) {
    CheckpointSchedule schedule(every_s);
    EXPECT_FALSE(schedule.Poll(Time(Seconds(1e6))));
    EXPECT_EQ(schedule.next(), kForever);
  }
}

TEST(CheckpointScheduleTest, TriesFinalCheckpointTwice) {
  CheckpointSchedule schedule(0);
  schedule.EndFinal(ResourceExhausted("the disk is full"));
  EXPECT_FALSE(schedule.final_done());
  schedule.EndFinal(ResourceExhausted("the disk is full"));
  EXPECT_TRUE(schedule.final_done());
  const std::string why = schedule.final_failure().message();
  EXPECT_NE(why.find("final checkpoint"), std::string::npos) << why;
}

TEST(CheckpointScheduleTest, ForgetsFirstFailureAfterSuccess) {
  CheckpointSchedule schedule(0);
  schedule.EndFinal(ResourceExhausted("the disk is full"));
  EXPECT_FALSE(schedule.final_failure().ok());
  schedule.EndFinal(Status::Ok());
  EXPECT_TRUE(schedule.final_done());
  EXPECT_TRUE(schedule.final_failure().ok());
}

TEST(CheckpointScheduleTest, SkippedFinalCheckpointIsNoFailure) {
  CheckpointSchedule schedule(0);
  schedule.SkipFinal();
  EXPECT_TRUE(schedule.final_done());
  EXPECT_TRUE(schedule.final_failure().ok());
}

}  // namespace
}  // namespace troop
