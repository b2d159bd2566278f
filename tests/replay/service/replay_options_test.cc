#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "replay/service/options_from_config.h"

namespace troop {
namespace {

TrajectorySpec Pictures() { return {{DType::kU8, {84, 84}}, {DType::kI32, {}}}; }

TEST(ReplayOptionsTest, ShardsTogetherHoldAtLeastTheConfiguredItems) {
  ReplaySetup setup{.seed = 7, .n_step = 5, .frame_stack = 4, .batch_size = 10};
  setup.replay.shards = 3;
  setup.replay.capacity_items = 100;
  setup.replay.min_items = 10;
  setup.replay.trim_every_updates = 2;
  const auto options = ReplayOptionsFor(setup, Pictures());
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  ASSERT_EQ(options->tables.size(), 1u);
  const auto& table = options->tables[0].table;
  EXPECT_EQ(table.capacity_items, 34);
  EXPECT_EQ(table.min_items, 4);
  EXPECT_EQ(table.trim_every_samples, 7);  // 20 samples over three shards
  EXPECT_EQ(table.view.length_max, 5);
  EXPECT_EQ(table.view.stack, 4);
  EXPECT_EQ(table.seed, 7u);
}

TEST(ReplayOptionsTest, ExtraTablesFollowTheRunsOwn) {
  ReplaySetup setup;
  setup.replay.tables = {{.name = "demonstrations"}};
  const auto options = ReplayOptionsFor(setup, Pictures());
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  ASSERT_EQ(options->tables.size(), 2u);
  EXPECT_EQ(options->tables[1].table.name, "demonstrations");
  setup.replay.tables[0].observation = "f31[2]";
  const Status refused = ReplayOptionsFor(setup, Pictures()).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("demonstrations: observation"), std::string::npos);
}

// A frame that one end encodes is decoded by the other.
TEST(ReplayOptionsTest, WriterServerAndSamplerAgree) {
  const ReplaySetup setup{.n_step = 2, .frame_stack = 3, .batch_size = 16};
  const auto server = *ReplayOptionsFor(setup, Pictures());
  const auto writer = WriterOptionsFor(setup.replay, Pictures());
  const auto sampler = SamplerOptionsFor(setup, Pictures());
  EXPECT_EQ(server.tables[0].table.codec, Codec::kLz4);
  EXPECT_EQ(writer.codec, Codec::kLz4);
  EXPECT_EQ(sampler.codec, Codec::kLz4);
  EXPECT_EQ(sampler.view.length_max, 2);
  EXPECT_EQ(sampler.view.stack, 3);
  EXPECT_EQ(sampler.batch_size, 16);
}

TEST(ReplayOptionsTest, LocalScopeUsesOneShardPerProcess) {
  ReplayConfig config;
  config.shards = 3;
  EXPECT_EQ(ReplayShardsFor(config, 4), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(ReplayShardsFor(config, 4, 2), (std::vector<std::int32_t>{0, 1}));
  config.scope = ReplayScope::kLocal;
  EXPECT_EQ(ReplayShardsFor(config, 4, 2), (std::vector<std::int32_t>{1}));
}

}  // namespace
}  // namespace troop
