#include "paramserver/replication/shard_loader.h"

#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// A shard of the second half of the arena. A new run's weights are 1, a checkpoint's 2.
class ShardLoaderTest : public testing::Test {
 protected:
  ShardLoaderTest() { options_.ranges = {{320, kParameters}}; }
  Result<std::unique_ptr<ParameterShard>> Load(bool snapshot_expected = false) {
    ShardLoader loader(&executor_, 0, fallbacks_);
    EXPECT_FALSE(loader.TakeDone().has_value());
    loader.Start({.since = 9,
                  .snapshots = &snapshots_,
                  .options = options_,
                  .parameters = kParameters,
                  .snapshot_expected = snapshot_expected});
    EXPECT_TRUE(loader.running());
    auto loaded = loader.TakeDone();
    EXPECT_FALSE(loader.running());
    EXPECT_EQ(loaded->since, 9u);
    return std::move(loaded->shard);
  }
  void SaveDamaged() {
    ASSERT_TRUE(snapshots_.Save(7, Buffer::Copy(std::as_bytes(std::span("damaged")))).ok());
  }
  void AddCheckpoint() {
    fallbacks_.checkpoint_weights = [](std::span<float> value) -> Result<std::uint64_t> {
      EXPECT_EQ(value.size(), std::size_t(kParameters));
      std::ranges::fill(value, 2.0F);
      return 41;
    };
  }

  ParameterShard::Options options_ = OptionsOf({.mode = SyncMode::kAsync});
  InlineExecutor executor_;
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  ShardSnapshots snapshots_{storage_.get(), 0};
  ShardLoader::Fallbacks fallbacks_{.first_weights = [](std::span<float> value) {
    std::ranges::fill(value, 1.0F);
    return Status::Ok();
  }};
};

TEST_F(ShardLoaderTest, NewRunBeginsWithFirstWeights) {
  const auto shard = Load();
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ((*shard)->version(), 1u);
  EXPECT_EQ((*shard)->size(), kParameters - 320);
  EXPECT_EQ((*shard)->value()[0], 1.0F);
}

TEST_F(ShardLoaderTest, SnapshotIsPreferredToCheckpoint) {
  AddCheckpoint();
  const Floats value(std::size_t(kParameters - 320), 3.0F);
  const auto saved = *ParameterShard::Make(options_, value, 6);
  ASSERT_TRUE(snapshots_.Save(5, saved->Snapshot()).ok());
  const auto shard = Load();
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ((*shard)->version(), 7u);
  EXPECT_EQ((*shard)->value()[0], 3.0F);
}

TEST_F(ShardLoaderTest, CheckpointReplacesDamagedSnapshot) {
  SaveDamaged();
  AddCheckpoint();
  const auto shard = Load();
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ((*shard)->version(), 42u);
  EXPECT_EQ((*shard)->value()[0], 2.0F);
}

TEST_F(ShardLoaderTest, DamageWithoutReplacementIsAnError) {
  SaveDamaged();
  const auto shard = Load();
  EXPECT_EQ(shard.status().code(), Code::kDataLoss);
  EXPECT_NE(shard.status().message().find("--overwrite"), std::string::npos);
}

TEST_F(ShardLoaderTest, MissingSnapshotOfLaterEpochIsAnError) {
  EXPECT_EQ(Load(true).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace troop
