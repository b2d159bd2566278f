// Tests of a learner's checkpoints, and of a learner that resumes from them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "learners/checkpoint.h"
#include "learners/learner_node.h"
#include "replay/episodes/episode.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/learner_world.h"

namespace troop {
namespace {

// 0 wrote one after the other, and a huge number overflowed into the past.
TEST(LearnerNodeTest, WritesOnlyFinalCheckpointWithoutInterval) {
  for (const double every_s : {0.0, 1e12}) {
    TrainingConfig config = WorldConfig();
    config.checkpoint.every_s = every_s;
    LearnerWorld world(config);
    world.Insert(200);
    ASSERT_TRUE(world.Rounds(1000));
    EXPECT_GT(world.Updates(), 0);
    EXPECT_EQ(world.coordinator().told.checkpoint, "");
    world.coordinator().reply.stop = true;
    EXPECT_FALSE(world.Rounds(1000));
    EXPECT_EQ(double(world.coordinator().told.checkpoint_updates), world.Updates());
    EXPECT_TRUE(world.coordinator().told.checkpoint_final);
  }
}

// Statistics with the factor 1/4, which is exact: the weights are those of rewards that the test
// has divided by 4, bit by bit.
TEST(LearnerNodeTest, DividesRewardsByDeviationOfReturns) {
  const double count = 1000, variance = 16 - 1e-8;
  const RewardStatistics rewards{.count = count, .mean = 3, .squares = count * variance};
  ASSERT_EQ(rewards.Scale(), 0.25);
  std::vector<Buffer> weights;
  for (const bool normalize : {false, true}) {
    TrainingConfig config = WorldConfig();
    config.normalize_rewards = normalize;
    config.reward_clip = 0.3;
    LearnerWorld world(config);
    world.reward_factor = normalize ? 1 : 0.25f;
    world.coordinator().reply.rewards = rewards;
    ASSERT_TRUE(world.Rounds(10));
    world.Insert(200);
    ASSERT_TRUE(world.Rounds(1000));
    ASSERT_GT(world.Updates(), 50);
    weights.push_back(world.Published().value);
    EXPECT_EQ(world.Told("learner/reward_scale"), normalize ? 0.25 : 0);
  }
  ASSERT_EQ(weights[0].size(), weights[1].size());
  EXPECT_TRUE(std::ranges::equal(weights[0].bytes(), weights[1].bytes()));
}

// A resumed learner reports the statistics of its checkpoint, and uses them until the run's arrive.
TEST(LearnerNodeTest, CheckpointKeepsRewardStatistics) {
  const RewardStatistics rewards{.count = 77, .mean = -0.1, .squares = 7.7};
  TrainingConfig config = WorldConfig();
  config.normalize_rewards = true;
  LearnerWorld world(config);
  world.coordinator().reply.rewards = rewards;
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.coordinator().told.rewards, RewardStatistics{});  // a new run begins with none
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  const auto checkpoint = NewestCheckpoint(world.run());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(ReadCheckpoint(world.run(), *checkpoint)->rewards, rewards);
  world.coordinator().reply.stop = false;
  world.coordinator().reply.rewards = {};
  world.StartLearner(9, *checkpoint);
  world.Insert(50);
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.coordinator().told.rewards, rewards);
  EXPECT_DOUBLE_EQ(world.Told("learner/reward_scale"), 1 / std::sqrt(0.1 + 1e-8));
}

// Former fault: a run that starts from other weights began with the scale 1.
TEST(LearnerNodeTest, WarmStartContinuesRewardStatistics) {
  const RewardStatistics rewards{.count = 77, .mean = -0.1, .squares = 7.7};
  TrainingConfig config = WorldConfig();
  config.normalize_rewards = true;
  TempFolder folder;
  {
    LearnerWorld world(config);
    world.coordinator().reply.rewards = rewards;
    world.Insert(200);
    ASSERT_TRUE(world.Rounds(300));
    world.coordinator().reply.stop = true;
    EXPECT_FALSE(world.Rounds(1000));
    const auto checkpoint = NewestCheckpoint(world.run());
    ASSERT_TRUE(checkpoint.ok());
    config.learner.init_from = folder.path() + "/" + *checkpoint;
    std::filesystem::create_directories(config.learner.init_from);
    const auto files = world.run()->List(*checkpoint);
    ASSERT_TRUE(files.ok());
    for (const std::string& name : *files) {
      const auto bytes = world.run()->Read(*checkpoint + "/" + name, std::size_t{1} << 20);
      ASSERT_TRUE(bytes.ok()) << name;
      std::ofstream(config.learner.init_from + "/" + name) << bytes->text();
    }
  }
  for (const bool normalize : {true, false}) {
    config.normalize_rewards = normalize;
    LearnerWorld world(config);
    world.Insert(50);
    ASSERT_TRUE(world.Rounds(300));
    EXPECT_EQ(world.coordinator().told.rewards, normalize ? rewards : RewardStatistics{});
    if (normalize) {
      EXPECT_DOUBLE_EQ(world.Told("learner/reward_scale"), 1 / std::sqrt(0.1 + 1e-8));
    }
  }
}

// A learner that is killed between its last checkpoint and the report of it leaves nothing to do to
// its successor. Former fault: the run ended with the steps that the first one had last reported.
TEST(LearnerNodeTest, SuccessorReportsStepsOfCheckpointWithoutUpdates) {
  const TempFolder folder;
  TrainingConfig config = WorldConfig();
  config.learner.algorithm = AlgorithmKind::kBehaviorCloning;
  config.learner.demonstrations = folder.path() + "/one.episodes";
  config.learner.demonstration_share = 1;
  config.network.dueling = false;
  config.run.max_updates = 100;
  config.run.total_steps = 800;
  const EnvSpec env = LearnerEnv();
  const std::vector<float> observations(11 * 3, 0.5f), rewards(10, 1);
  const std::vector<std::int32_t> actions(10, 1);
  const auto bytes =
      EncodeEpisode({.env = env.id,
                     .observation = env.observation,
                     .action = env.action,
                     .steps = 10,
                     .terminated = true,
                     .observations = Buffer::Copy(std::as_bytes(std::span(observations))),
                     .actions = Buffer::Copy(std::as_bytes(std::span(actions))),
                     .rewards = Buffer::Copy(std::as_bytes(std::span(rewards)))});
  std::ofstream(config.learner.demonstrations, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  LearnerWorld world(config);
  ASSERT_TRUE(world.Rounds(1000));
  ASSERT_TRUE(world.coordinator().told.checkpoint_final);
  ASSERT_EQ(world.coordinator().told.steps_done, 800);
  world.StartLearner(9, world.coordinator().told.checkpoint);
  world.coordinator().told = {};
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_TRUE(world.coordinator().told.finished);
  EXPECT_EQ(world.coordinator().told.steps_done, 800);
}

TEST(LearnerNodeTest, RetriesFinalCheckpoint) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.run()->refusals = 1;
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
  EXPECT_TRUE(world.coordinator().told.checkpoint_final);
  EXPECT_TRUE(NewestCheckpoint(world.run()).ok());
}

// It counted as written.
TEST(LearnerNodeTest, FailsOrderlyWithoutFinalCheckpoint) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.run()->refusals = 1000;
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_TRUE(world.coordinator().told.finished);  // the last weights are there to be judged
  EXPECT_EQ(double(UpdatesOf(world.published())), world.Updates());
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  const std::string why = world.node().result().message();
  for (const char* part : {"final checkpoint", "the disk is full"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
  EXPECT_EQ(world.coordinator().told.checkpoint, "");
  EXPECT_FALSE(world.coordinator().told.checkpoint_final);
}

// It waited for a replay and a parameter server that were gone already, till it was killed.
TEST(LearnerNodeTest, CheckpointsOnEarlyStopWithoutPeers) {
  LearnerWorld world(WorldConfig());
  world.coordinator().reply.peers.clear();
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
  EXPECT_TRUE(NewestCheckpoint(world.run()).ok());
}

// `troop scale RUN learners=2` makes a second learner join. Until their group is formed, neither is
// its leader; a run that was stopped then ended without a checkpoint.
TEST(LearnerNodeTest, WritesFinalCheckpointWhileFirstGroupIsFormed) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  ASSERT_GT(world.Updates(), 0);
  world.coordinator().reply.fleet.learners = 2;
  ASSERT_TRUE(world.Rounds(100));
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
  EXPECT_TRUE(world.coordinator().told.checkpoint_final);
  EXPECT_EQ(double(world.coordinator().told.checkpoint_updates), world.Updates());
  EXPECT_EQ(world.coordinator().told.checkpoint, *NewestCheckpoint(world.run()));
}

// Its versions began below those that were published, and were ignored.
TEST(LearnerNodeTest, RestartPublishesNewerVersionDespiteFewerUpdates) {
  TrainingConfig config = WorldConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(60);
  ASSERT_TRUE(world.Rounds(1000));
  const std::string early = world.coordinator().told.checkpoint;
  ASSERT_FALSE(early.empty());
  const std::uint64_t early_updates = world.coordinator().told.checkpoint_updates;
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(20));
  const std::uint64_t before = world.published();
  world.StartLearner(9, early);
  ASSERT_TRUE(world.Rounds(20));
  EXPECT_GT(world.published(), before);
  EXPECT_GE(UpdatesOf(world.published()), early_updates);
}

TEST(LearnerNodeTest, ContinuesFromCheckpoint) {
  LearnerWorld world(WorldConfig());
  world.Insert(150);
  ASSERT_TRUE(world.Rounds(500));
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(500));
  const auto path = NewestCheckpoint(world.run());
  const auto checkpoint = ReadCheckpoint(world.run(), *path);
  ASSERT_GT(checkpoint->updates, 0u);
  world.coordinator().reply.stop = false;
  world.StartLearner(7, *path);
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.published() >> 32, 7u);
  EXPECT_GE(UpdatesOf(world.published()), checkpoint->updates);
}

TEST(LearnerNodeTest, NamesDamagedCheckpoint) {
  LearnerWorld world(WorldConfig());
  ASSERT_TRUE(world.run()->WriteAtomic("checkpoints/000000000001/manifest.json", "{}").ok());
  const auto hub = MakeSimHub();
  const auto network = hub->MakeNetwork();
  CoordinatorFake coordinator(hub.get());
  const auto member = coordinator.Member(network.get(), Role::kLearner, 1);
  InlineExecutor executor;
  const auto node = LearnerNode::Make({.config = WorldConfig(),
                                       .env = LearnerEnv(),
                                       .network = network.get(),
                                       .member = member.get(),
                                       .executor = &executor,
                                       .run = world.run(),
                                       .resume_checkpoint = "checkpoints/000000000001"});
  EXPECT_EQ(node.status().code(), Code::kDataLoss);
  EXPECT_NE(node.status().message().find("000000000001/manifest.json"), std::string::npos);
}

// It failed again and again, till the run was given up.
TEST(LearnerNodeTest, FallsBackToOlderCheckpoint) {
  TrainingConfig config = WorldConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(400));
  const std::string first = world.coordinator().told.checkpoint;
  world.Insert(50);
  ASSERT_TRUE(world.Rounds(400));
  const std::string newer = world.coordinator().told.checkpoint;
  ASSERT_NE(first, newer);
  ASSERT_TRUE(world.run()->WriteAtomic(newer + "/state.safetensors", "x").ok());
  const std::string older = *NewestCheckpoint(world.run());
  ASSERT_NE(older, newer);
  world.StartLearner(9, newer);
  ASSERT_TRUE(world.Rounds(2));
  EXPECT_EQ(world.coordinator().told.checkpoint, older);
}

// The previous learner died, or was disconnected, before it reported its last checkpoint.
TEST(LearnerNodeTest, ResumesFromNewerCheckpointThanReported) {
  TrainingConfig config = WorldConfig();
  config.checkpoint.every_s = 0.05;
  for (const bool known : {false, true}) {
    LearnerWorld world(config);
    world.Insert(100);
    ASSERT_TRUE(world.Rounds(400));
    const std::string first = world.coordinator().told.checkpoint;
    world.Insert(50);
    ASSERT_TRUE(world.Rounds(400));
    const std::string newest = *NewestCheckpoint(world.run());
    ASSERT_LT(first, newest);
    world.StartLearner(9, known ? first : "");
    ASSERT_TRUE(world.Rounds(2));
    EXPECT_EQ(world.coordinator().told.checkpoint, newest);
  }
}

}  // namespace
}  // namespace troop
