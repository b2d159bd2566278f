#include "learners/sync/topology.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(TopologyTest, FollowsFromConfigAndNumberOfLearners) {
  TrainingConfig config;
  config.learner.sync = LearnerSync::kAllReduce;
  EXPECT_EQ(TopologyOf(config, 1, 1), Topology::kLocal);
  EXPECT_EQ(TopologyOf(config, 3, 1), Topology::kAllReduce);
  EXPECT_EQ(TopologyOf(config, 2, 2), Topology::kAllReduce);
  config.learner.hogwild_threads = 4;
  EXPECT_EQ(TopologyOf(config, 1, 1), Topology::kHogwild);
  EXPECT_EQ(TopologyOf(config, 2, 1), Topology::kAllReduce);
  config.learner.sync = LearnerSync::kParamServer;
  EXPECT_EQ(TopologyOf(config, 1, 1), Topology::kParamServer);
  EXPECT_EQ(TopologyOf(config, 4, 1), Topology::kParamServer);
  EXPECT_EQ(TopologyOf(config, 4, 2), Topology::kTensorParallelParamServer);
}

TEST(TopologyTest, EachIsAloneOrInGroupOrUsesShards) {
  for (const Topology alone : {Topology::kLocal, Topology::kHogwild}) {
    EXPECT_TRUE(IsAlone(alone));
    EXPECT_FALSE(UsesShards(alone));
  }
  EXPECT_FALSE(IsAlone(Topology::kAllReduce));
  EXPECT_FALSE(UsesShards(Topology::kAllReduce));
  for (const Topology shards : {Topology::kParamServer, Topology::kTensorParallelParamServer}) {
    EXPECT_FALSE(IsAlone(shards));
    EXPECT_TRUE(UsesShards(shards));
  }
}

}  // namespace
}  // namespace troop
