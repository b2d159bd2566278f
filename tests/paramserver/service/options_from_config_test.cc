#include "paramserver/service/options_from_config.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

TEST(ParamServerFromConfigTest, AppliesEveryKey) {
  Config config = ShardConfig(3, true, "k_of_n");
  config.fleet.learners = 5;
  config.paramserver.k = 4;
  config.paramserver.cancel = config.paramserver.per_batch = config.paramserver.staleness_discount =
      true;
  config.paramserver.pull_every = 7;
  config.paramserver.push_every = 6;
  config.paramserver.max_staleness = 9;
  config.paramserver.outlier_sigmas = 2.5;
  config.paramserver.outlier_norm_sigmas = 3.5;
  config.paramserver.compression = "strom";
  config.paramserver.strom_threshold = 0.25;
  config.paramserver.lease_s = 11;
  const SyncOptions sync = SyncOptionsFor(config);
  EXPECT_EQ(sync.mode, SyncMode::kKOfN);
  EXPECT_EQ(sync.learners, 5);
  EXPECT_EQ(sync.k, 4);
  EXPECT_TRUE(sync.cancel && sync.per_batch && sync.staleness_discount);
  EXPECT_TRUE(CheckSyncOptions(sync).ok());
  EXPECT_EQ(GradientFilterOptionsFor(config).staleness_max, 9);
  EXPECT_EQ(GradientFilterOptionsFor(config).loss_deviations, 2.5);
  EXPECT_EQ(GradientFilterOptionsFor(config).norm_deviations, 3.5);
  EXPECT_EQ(GradientFilterOptionsFor(Config{}).staleness_max, -1);
  EXPECT_EQ(ReplicaOptionsFor(config).pull_every, 7);
  EXPECT_EQ(ReplicaOptionsFor(config).push_every, 6);
  EXPECT_FALSE(ReplicaOptionsFor(config).push_value);
  EXPECT_EQ(CodecOptionsFor(config).codec, GradientCodec::kStrom);
  EXPECT_EQ(CodecOptionsFor(config).threshold, 0.25f);
  EXPECT_EQ(ShardServerOptionsFor(config).lease, Seconds(11));
  EXPECT_EQ(ParameterServersOf(config), 6);
  EXPECT_EQ(ParameterServersOf(Config{}), 1);
  EXPECT_LT(PrimaryContactTimeoutFor(config), PrimaryElectionOptionsFor(config).alone_max);
}

TEST(ParamServerFromConfigTest, LocalSgdAveragesValues) {
  Config config = ShardConfig(1, false, "local_sgd");
  config.paramserver.pull_every = config.paramserver.push_every = 16;
  EXPECT_TRUE(ReplicaOptionsFor(config).push_value);
  EXPECT_TRUE(CheckReplicaOptions(ReplicaOptionsFor(config)).ok());
  EXPECT_TRUE(IsSynchronous(SyncOptionsFor(config)));
}

TEST(ParamServerFromConfigTest, SynchronousShardsKeepTwoVersions) {
  const auto kept = [](int shards, const std::string& mode) {
    const Config config = ShardConfig(shards, false, mode);
    const auto module = *MakeNetwork(config, SmallEnv());
    const ShardMap map = *ShardMapFor(config, *module);
    return ParameterShardOptionsFor(config, *module, map, 0).versions_kept;
  };
  EXPECT_EQ(kept(1, "bsp"), 1);
  EXPECT_EQ(kept(2, "bsp"), 2);
  EXPECT_EQ(kept(2, "local_sgd"), 2);
  EXPECT_EQ(kept(2, "async"), 1);
}

TEST(ParamServerFromConfigTest, RejectsShardLargerThanMessageWithRemedy) {
  Config config = ShardConfig(1, false);
  config.network.layers = {{.type = "linear", .units = 25000}, {.type = "linear", .units = 25000}};
  const auto module = *MakeNetwork(config, SmallEnv());
  const auto map = ShardMapFor(config, *module);
  EXPECT_EQ(map.status().code(), Code::kInvalidArgument);
  EXPECT_NE(map.status().message().find("use more shards"), std::string::npos);
  config.paramserver.shards = 4;
  EXPECT_TRUE(ShardMapFor(config, *module).ok());
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
