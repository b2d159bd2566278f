#include "paramserver/service/shard_primary.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

// A primary of shard 0 next to the fleet's own processes. Its member is that of process 0.
class ShardPrimaryTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fleet_.Await([&] { return fleet_.InSync(0); }));
    primary_ = std::make_unique<ShardPrimary>(
        ShardPrimary::Context{.config = &fleet_.config_,
                              .network = fleet_.slots_[0].network.get(),
                              .member = member(),
                              .layout = &layout_,
                              .snapshots = &snapshots_,
                              .saver = &saver_},
        term_, ShardReplica{Make(layout_.OptionsFor(layout_.map()), fleet_.FirstOfRun()), 5},
        false);
  }
  FleetMember* member() { return fleet_.slots_[0].member.get(); }

  ShardFleet fleet_{ShardConfigFor(1, true)};
  ShardLayout layout_ = *ShardLayout::Make(fleet_.config_, fleet_.module_.get(), 0, nullptr);
  InlineExecutor executor_;
  ShardSaver saver_{{.executor = &executor_, .shard = 0, .every_s = 10}};
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  ShardSnapshots snapshots_{storage_.get(), 0};
  ShardTerm term_{.term = 90, .since = 80, .primary = 0, .backup = 1};
  std::unique_ptr<ShardPrimary> primary_;
};

TEST_F(ShardPrimaryTest, HoldsTermOnceBackupIsConnected) {
  primary_->Adopt({.term = 91, .since = 80, .primary = 0, .backup = 7});
  ASSERT_TRUE(primary_->ConnectBackup().ok());
  EXPECT_NE(member()->report().shard_term, 91u) << "the endpoint of process 7 is not known";
  EXPECT_EQ(primary_->server().backup(), nullptr);
  primary_->Adopt({.term = 92, .since = 80, .primary = 0, .backup = 1});
  ASSERT_TRUE(primary_->ConnectBackup().ok());
  EXPECT_EQ(member()->report().shard_term, 92u);
  const BackupClient* const backup = primary_->server().backup();
  ASSERT_NE(backup, nullptr);
  EXPECT_EQ(backup->term(), 92u);
  ASSERT_TRUE(primary_->ConnectBackup().ok());
  EXPECT_EQ(primary_->server().backup(), backup) << "connected once per term";
  primary_->Adopt({.term = 93, .since = 80, .primary = 0, .backup = -1});
  ASSERT_TRUE(primary_->ConnectBackup().ok());
  EXPECT_EQ(primary_->server().backup(), nullptr);
  EXPECT_EQ(member()->report().shard_term, 93u);
}

TEST_F(ShardPrimaryTest, SavesAtIntervalsUnlessPaused) {
  primary_->Tick(fleet_.now_);
  primary_->server().SetPaused(true);
  primary_->Tick(fleet_.now_ + Seconds(11));
  EXPECT_FALSE(saver_.running());
  primary_->server().SetPaused(false);
  primary_->Tick(fleet_.now_ + Seconds(12));
  EXPECT_TRUE(saver_.running());
  EXPECT_TRUE(saver_.Collect().ok());
  EXPECT_EQ(saver_.next_save(), fleet_.now_ + Seconds(22));
  ASSERT_EQ(snapshots_.List()->size(), 1u);
  EXPECT_EQ(std::stoull(snapshots_.List()->front()), term_.since);
}

TEST_F(ShardPrimaryTest, FinalSaveWaitsForRunningSave) {
  primary_->Tick(fleet_.now_);
  primary_->Tick(fleet_.now_ + Seconds(11));
  ASSERT_TRUE(saver_.running());
  primary_->SaveFinal();
  EXPECT_FALSE(saver_.final_started());
  EXPECT_TRUE(saver_.Collect().ok());
  primary_->SaveFinal();
  EXPECT_TRUE(saver_.final_started());
}

}  // namespace
}  // namespace troop
