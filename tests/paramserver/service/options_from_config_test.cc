#include "paramserver/service/options_from_config.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

TEST(ParamServerFromConfigTest, AppliesEveryKey) {
  ShardConfig config = ShardConfigFor(3, true, SyncMode::kKOfN);
  config.workers = 5;
  config.paramserver.k = 4;
  config.paramserver.cancel = config.paramserver.per_batch = config.paramserver.staleness_discount =
      true;
  config.paramserver.pull_every = 7;
  config.paramserver.push_every = 6;
  config.paramserver.max_staleness = 9;
  config.paramserver.outlier_sigmas = 2.5;
  config.paramserver.outlier_norm_sigmas = 3.5;
  config.paramserver.compression = GradientCodec::kStrom;
  config.paramserver.strom_threshold = 0.25;
  config.paramserver.lease_s = 11;
  const SyncOptions sync = SyncOptionsFor(config.paramserver, config.workers);
  EXPECT_EQ(sync.mode, SyncMode::kKOfN);
  EXPECT_EQ(sync.learners, 5);
  EXPECT_EQ(sync.k, 4);
  EXPECT_TRUE(sync.cancel && sync.per_batch && sync.staleness_discount);
  EXPECT_TRUE(CheckSyncOptions(sync).ok());
  EXPECT_EQ(GradientFilterOptionsFor(config.paramserver).staleness_max, 9);
  EXPECT_EQ(GradientFilterOptionsFor(config.paramserver).loss_deviations, 2.5);
  EXPECT_EQ(GradientFilterOptionsFor(config.paramserver).norm_deviations, 3.5);
  EXPECT_EQ(GradientFilterOptionsFor(ParamServerConfig()).staleness_max, -1);
  EXPECT_EQ(ReplicaOptionsFor(config.paramserver).pull_every, 7);
  EXPECT_EQ(ReplicaOptionsFor(config.paramserver).push_every, 6);
  EXPECT_FALSE(ReplicaOptionsFor(config.paramserver).push_value);
  EXPECT_EQ(CodecOptionsFor(config.paramserver).codec, GradientCodec::kStrom);
  EXPECT_EQ(CodecOptionsFor(config.paramserver).threshold, 0.25f);
  EXPECT_EQ(ShardServerOptionsFor(config.paramserver).lease, Seconds(11));
  EXPECT_EQ(ServersPerShard(config.paramserver), 2);
  EXPECT_EQ(PushesOfUpdate(config.paramserver, config.workers), 4);
  EXPECT_EQ(WorkersOf(6, 2), 3);
  EXPECT_LT(PrimaryContactTimeoutFor(config), PrimaryElectionOptionsFor(config).alone_max);
}

TEST(ParamServerFromConfigTest, LocalSgdAveragesValues) {
  ShardConfig config = ShardConfigFor(1, false, SyncMode::kLocalSgd);
  config.paramserver.pull_every = config.paramserver.push_every = 16;
  EXPECT_TRUE(ReplicaOptionsFor(config.paramserver).push_value);
  EXPECT_TRUE(CheckReplicaOptions(ReplicaOptionsFor(config.paramserver)).ok());
  EXPECT_TRUE(HasSynchronousShards(config.paramserver));
}

TEST(ParamServerFromConfigTest, SynchronousShardsKeepTwoVersions) {
  const auto kept = [](int shards, SyncMode mode) {
    const ShardConfig config = ShardConfigFor(shards, false, mode);
    const auto module = *MakeNetwork(config.model, SmallEnv());
    const ShardMap map = *ShardMapFor(config.paramserver, *module);
    return ParameterShardOptionsFor(config, *module, map, 0).versions_kept;
  };
  EXPECT_EQ(kept(1, SyncMode::kBsp), 1);
  EXPECT_EQ(kept(2, SyncMode::kBsp), 2);
  EXPECT_EQ(kept(2, SyncMode::kLocalSgd), 2);
  EXPECT_EQ(kept(2, SyncMode::kAsync), 1);
}

TEST(ParamServerFromConfigTest, RejectsShardLargerThanMessageWithRemedy) {
  ShardConfig config = ShardConfigFor(1, false);
  config.model.network.layers = {{.type = LayerType::kLinear, .units = 25000},
                                 {.type = LayerType::kLinear, .units = 25000}};
  const auto module = *MakeNetwork(config.model, SmallEnv());
  const auto map = ShardMapFor(config.paramserver, *module);
  EXPECT_EQ(map.status().code(), Code::kInvalidArgument);
  EXPECT_NE(map.status().message().find("use more shards"), std::string::npos);
  config.paramserver.shards = 4;
  EXPECT_TRUE(ShardMapFor(config.paramserver, *module).ok());
}

TEST(ParamServerFromConfigTest, AcceptsBertSizedWeightsAndRejectsOversizedOnes) {
  EXPECT_TRUE(CheckWeightsMessage(109'483'778).ok());
  EXPECT_TRUE(CheckWeightsMessage(335'000'000).ok());  // BERT-large
  const Status refused = CheckWeightsMessage(600'000'000);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("600000000 parameters (2400 MB)"), std::string::npos);
}

}  // namespace
}  // namespace troop
