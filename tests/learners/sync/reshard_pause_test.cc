#include "learners/sync/reshard_pause.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

// A learner that stays in a fleet whose shards are being moved.
class ReshardPauseTest : public testing::Test {
 protected:
  ReshardPauseTest() { learner_->stays = true; }
  void AwaitStage(ShardMoveStage stage) {
    ASSERT_TRUE(fleet_.Await([&] {
      const ShardMove& move = learner_->member->shard_move();
      return move.number != 0 && move.stage == stage;
    }));
  }

  ShardFleet fleet_{ShardConfigFor(2, false)};
  ShardFleet::Learner* learner_ = fleet_.AddLearner(0);
  ReshardPause pause_{learner_->member.get()};
};

TEST_F(ReshardPauseTest, IsRequestedOnceNewShardsHaveJoined) {
  fleet_.Pump(10);
  EXPECT_FALSE(pause_.requested());
  pause_.Left();  // for another reason
  ASSERT_TRUE(fleet_.BeginMove(3).ok());
  fleet_.Freeze(2, true);
  AwaitStage(ShardMoveStage::kGathering);
  EXPECT_FALSE(pause_.requested());
  fleet_.Freeze(2, false);
  AwaitStage(ShardMoveStage::kPausing);
  EXPECT_TRUE(pause_.requested());
  EXPECT_FALSE(pause_.left()) << "it left for another reason";
}

TEST_F(ReshardPauseTest, ConfirmationLetsShardsHandOver) {
  ASSERT_TRUE(fleet_.BeginMove(3).ok());
  AwaitStage(ShardMoveStage::kPausing);
  pause_.Left();
  EXPECT_TRUE(pause_.left());
  fleet_.Pump(300);
  EXPECT_EQ(learner_->member->shard_move().stage, ShardMoveStage::kPausing);
  pause_.Confirm();
  AwaitStage(ShardMoveStage::kHandingOver);
  EXPECT_TRUE(pause_.requested());
  ASSERT_TRUE(fleet_.Await([&] { return learner_->member->shard_move().number == 0; }));
  EXPECT_FALSE(pause_.requested());
}

}  // namespace
}  // namespace troop
