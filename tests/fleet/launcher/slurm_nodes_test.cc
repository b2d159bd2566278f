#include "fleet/launcher/slurm_nodes.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

std::vector<SlurmNodes::Node> Nodes(std::vector<std::int64_t> cpus) {
  std::vector<SlurmNodes::Node> nodes;
  for (const std::int64_t c : cpus) {
    nodes.push_back({.name = "n" + std::to_string(nodes.size()), .cpus = c});
  }
  return nodes;
}

Config ConfigOf(std::int64_t actors) {
  Config config;
  config.fleet.actors = actors;
  return config;
}

const FleetRole kLearner0{Role::kLearner, 0}, kReplay0{Role::kReplay, 0};
const FleetRole kWeights{Role::kParamServer, 0}, kEvaluatorRole{Role::kEvaluator, 0};
constexpr Time kNow = Time{} + Seconds(1000);

TEST(SlurmNodesTest, SeparatesLearnerAndReplayAndGivesActorsTheRest) {
  SlurmNodes nodes(ConfigOf(10), Nodes({2, 2, 2, 2}));
  EXPECT_EQ(nodes.NodeOf(kLearner0), 1);
  EXPECT_EQ(nodes.NodeOf(kReplay0), 2);
  EXPECT_EQ(nodes.NodeOf(kWeights), 0);
  EXPECT_EQ(nodes.NodeOf(kEvaluatorRole), 0);
  // Free cores: 1 next to the launcher, 1 next to the learner, 1 next to the replay, and 2.
  for (int node = 0; node < 3; ++node) EXPECT_EQ(nodes.ActorsOn(node), 2) << node;
  EXPECT_EQ(nodes.ActorsOn(3), 4);
}

TEST(SlurmNodesTest, PlacesAllOnSingleNode) {
  SlurmNodes nodes(ConfigOf(3), Nodes({1}));
  for (const FleetRole& role : {kLearner0, kReplay0, kWeights, kEvaluatorRole}) {
    EXPECT_EQ(nodes.NodeOf(role), 0);
  }
  EXPECT_EQ(nodes.ActorsOn(0), 3);
  EXPECT_EQ(nodes.Move(kReplay0, kNow), 0) << "there is no other";
}

TEST(SlurmNodesTest, PlacesAllActors) {
  for (const std::int64_t actors : {1, 7, 100, 100000}) {
    for (const auto& cpus : {std::vector<std::int64_t>{1, 1}, {2, 3, 64}, {1, 1, 1, 1, 1, 7}}) {
      SlurmNodes nodes(ConfigOf(actors), Nodes(cpus));
      std::int64_t dealt = 0;
      for (int i = 0; i < nodes.count(); ++i) dealt += nodes.ActorsOn(i);
      EXPECT_EQ(dealt, actors);
    }
  }
}

TEST(SlurmNodesTest, SpreadsLearnersAndShardsOrFollowsConfig) {
  Config config = ConfigOf(4);
  config.fleet.learners = 2;
  config.replay.shards = 2;
  SlurmNodes spread(config, Nodes({4, 4, 4, 4, 4}));
  std::vector<int> places;
  for (std::int32_t i = 0; i < 2; ++i) {
    places.push_back(spread.NodeOf({Role::kLearner, i}));
    places.push_back(spread.NodeOf({Role::kReplay, i}));
  }
  std::ranges::sort(places);
  EXPECT_EQ(places, (std::vector<int>{1, 2, 3, 4}));
  config.slurm.learner_node = 3;
  config.slurm.replay_node = 0;
  SlurmNodes told(config, Nodes({4, 4, 4, 4, 4}));
  EXPECT_EQ(told.NodeOf({Role::kLearner, 0}), 3);
  EXPECT_EQ(told.NodeOf({Role::kLearner, 1}), 4);
  EXPECT_EQ(told.NodeOf({Role::kReplay, 0}), 0);
  EXPECT_EQ(told.NodeOf({Role::kReplay, 1}), 1);
}

TEST(SlurmNodesTest, SpreadsParameterShards) {
  Config config = ConfigOf(1);
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.shards = 2;
  SlurmNodes nodes(config, Nodes({4, 4, 4, 4, 4}));
  EXPECT_NE(nodes.NodeOf({Role::kParamServer, 0}), nodes.NodeOf({Role::kParamServer, 1}));
  EXPECT_NE(nodes.NodeOf({Role::kParamServer, 0}), 0);
  EXPECT_GT(nodes.NodeOf({Role::kParamServer, 2}), 0) << "one that was added since";
}

TEST(SlurmNodesTest, MovesRolesOfLostNodeToHealthyNode) {
  SlurmNodes nodes(ConfigOf(4), Nodes({2, 2, 2, 2}));
  nodes.MarkSuspect(2, kNow);
  EXPECT_TRUE(nodes.IsSuspect(2, kNow));
  EXPECT_EQ(nodes.Move(kReplay0, kNow), 3) << "node 1 has the learner";
  nodes.MarkSuspect(3, kNow);
  EXPECT_EQ(nodes.Move(kReplay0, kNow), 1);
  nodes.MarkSuspect(1, kNow);
  EXPECT_EQ(nodes.Move(kReplay0, kNow), 0);
  EXPECT_EQ(nodes.Move(kLearner0, kNow), 0);
  EXPECT_EQ(nodes.NodeOf(kLearner0), 0) << "it stays there";
}

TEST(SlurmNodesTest, DoubtsNodeLongerAfterEachFailure) {
  SlurmNodes nodes(ConfigOf(4), Nodes({2, 2}));
  const auto length = [&](Time from) {
    Time t = from;
    while (nodes.IsSuspect(1, t)) t += Seconds(1);
    return ToSeconds(t - from);
  };
  nodes.MarkSuspect(1, kNow);
  const double first = length(kNow);
  nodes.MarkSuspect(1, kNow + Seconds(1));  // another role reports the same loss
  EXPECT_EQ(length(kNow), first);
  const Time later = kNow + Seconds(first);
  nodes.MarkSuspect(1, later);
  EXPECT_EQ(length(later), 2 * first);
  nodes.ClearSuspect(1);
  EXPECT_FALSE(nodes.IsSuspect(1, later));
  nodes.MarkSuspect(1, later);
  EXPECT_EQ(length(later), first);
  Time t = later;
  for (int i = 0; i < 100; ++i) {
    t += Seconds(1e6);
    nodes.MarkSuspect(1, t);
  }
  EXPECT_LE(length(t), 300) << "a repaired node must be retried";
  nodes.MarkSuspect(0, t);
  EXPECT_FALSE(nodes.IsSuspect(0, t)) << "the launcher's own node is never in doubt";
}

TEST(SlurmNodesTest, ParsesSlurmCpusPerNode) {
  EXPECT_EQ(*ParseCpusPerNode("2(x4)", 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(*ParseCpusPerNode("4(x2),8,1(x1)", 4), (std::vector<std::int64_t>{4, 4, 8, 1}));
  for (const char* text : {"", "2", "2(x5)", "2(x3)", "2(x4),", "2(x4", "0(x4)", "x", "2(x)",
                           "2,2,2,", "2(x99999999999999999999)", "2(x4)2", "-1(x4)", "2(x-4)"}) {
    EXPECT_FALSE(ParseCpusPerNode(text, 4).ok()) << text;
  }
  EXPECT_FALSE(ParseCpusPerNode("2(x9000000000000000000)", 4).ok()) << "not tried";
}

}  // namespace
}  // namespace troop
