// Tests of a learner with non-finite values.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <limits>

#include "core/base/failpoint.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/checkpoint.h"
#include "learners/learner_node.h"
#include "nn/models/model.h"
#include "tests/learners/learner_world.h"

namespace troop {
namespace {

// They were counted over its whole life: a long run with a rare bad number ended. All bad, it goes
// back three times, which does not help: the replay is what is bad.
TEST(LearnerNodeTest, FailsOnlyAfterConsecutiveBadUpdates) {
  TrainingConfig config = WorldConfig();
  config.replay.samples_per_insert = 0;  // no limit
  config.learner.loss = TdLoss::kMse;
  for (const bool all_bad : {false, true}) {
    LearnerWorld world(config);
    world.Insert(200, all_bad ? 1 : 25);  // else 1 - (24/25)^8 = 28 % of the batches are bad
    EXPECT_EQ(world.Rounds(2000), !all_bad);
    EXPECT_LE(world.Told("learner/quarantined_items"), Quarantine::kItemsMax);
    EXPECT_EQ(world.node().result().code(), all_bad ? Code::kCancelled : Code::kOk);
    if (!all_bad) {
      EXPECT_GT(world.Told("learner/quarantined_items"), 4);
      EXPECT_EQ(world.Told("learner/rollbacks"), 0);
      continue;
    }
    const std::string why = world.node().result().message();
    for (const char* part : {"after 3 rollbacks", "the gradient of layers.0.weight[",
                             "is 1e+38, observation[0] of item", "optimizer.learning_rate"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
}

// One such item among 200: its priority outweighed all others and was never renewed, so that every
// batch was skipped, and after three roll-backs the run ended.
TEST(LearnerNodeTest, DropsItemWithHugeValueWithoutRollback) {
  TrainingConfig config = WorldConfig();
  config.learner.loss = TdLoss::kMse;
  config.run.max_updates = 150;
  LearnerWorld world(config);
  world.Insert(100);
  world.InsertLoud();
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Told("learner/quarantined_items"), 1);
  EXPECT_GE(world.Told("learner/skipped_updates"), 1);
  EXPECT_LT(world.Told("learner/skipped_updates"), 60);  // the batches that were requested ahead
  EXPECT_GT(world.Updates(), 80);
  EXPECT_EQ(world.Told("learner/rollbacks"), 0);
}

// Arms a failpoint for one test.
class Armed {
 public:
  explicit Armed(const std::string& order) {
    setenv("TROOP_FAILPOINT", order.c_str(), 1);
    ReloadFailpoint();
  }
  ~Armed() {
    unsetenv("TROOP_FAILPOINT");
    ReloadFailpoint();
  }
};

TEST(LearnerNodeTest, SkipsOneUpdateAfterOneBadGradient) {
  const Armed armed("learner.gradient:20");
  TrainingConfig config = WorldConfig();
  config.run.max_updates = 60;
  LearnerWorld world(config);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Told("learner/skipped_updates"), 1);
  EXPECT_EQ(world.Updates(), 59);
  EXPECT_EQ(world.Told("learner/rollbacks"), 0);
}

// All numbers of all checkpoints.
bool CheckpointsAreFinite(Storage* run) {
  const std::vector<std::string> names = *run->List("checkpoints");
  for (const std::string& name : names) {
    const auto read = ReadCheckpoint(run, "checkpoints/" + name.substr(0, name.size() - 1));
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    for (const auto& [tensor, values] : read->state.tensors) {
      if (!AllFinite(values.as<float>())) return false;
    }
  }
  return true;
}

// Found while it works, at a publication, or when it is about to write its last checkpoint.
TEST(LearnerNodeTest, RollsBackBadWeightWithoutPublishingIt) {
  for (const std::int64_t at : {1, 7, 20, 59, 60}) {
    for (const bool checkpoints : {false, true}) {
      const Armed armed(fmt::format("learner.weight:{}", at));
      TrainingConfig config = WorldConfig();
      config.run.max_updates = 60;
      if (checkpoints) config.checkpoint.every_s = 0.001;
      LearnerWorld world(config, 4, std::make_unique<LateExecutor>());
      std::uint64_t version = 0;
      ASSERT_TRUE(world.Rounds(5));
      for (int i = 0; i < 1000; ++i) {
        if (i < 200 && i % 10 == 0) world.Insert(10);
        ASSERT_TRUE(world.Rounds(1));
        const WeightSnapshot seen = world.Published();
        ASSERT_GE(seen.version, version);
        version = seen.version;
        ASSERT_TRUE(AllFinite(seen.value.as<float>())) << at << " " << UpdatesOf(version);
        if (i % 10 == 0) {
          ASSERT_TRUE(CheckpointsAreFinite(world.run())) << at;
        }
      }
      EXPECT_TRUE(world.coordinator().told.finished);
      EXPECT_EQ(world.Told("learner/rollbacks"), 1);
      const std::uint64_t updates = world.coordinator().told.checkpoint_updates;
      EXPECT_EQ(version, WeightsVersion(4, updates));
      EXPECT_GE(updates, 28u);  // those of the jobs under way, twice 16, are lost
    }
  }
}

// A checkpoint with an infinite weight, as an older version could write it.
TEST(LearnerNodeTest, SkipsNonFiniteCheckpointOnResume) {
  TrainingConfig config = WorldConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(400));
  const std::string good = world.coordinator().told.checkpoint;
  auto checkpoint = *ReadCheckpoint(world.run(), good);
  Tensor spoilt(DType::kF32, checkpoint.state.tensors.at("value").shape());
  spoilt.as<float>()[3] = std::numeric_limits<float>::infinity();
  checkpoint.state.tensors["value"] = spoilt;
  checkpoint.updates += 1000;
  checkpoint.state.metadata["updates"] = std::to_string(checkpoint.updates);
  const auto module = MakeNetwork(ModelSetupOf(config), LearnerEnv());
  const auto bad = WriteCheckpoint(world.run(), **module, checkpoint, 10);
  world.StartLearner(9, *bad);
  ASSERT_TRUE(world.Rounds(20));
  const WeightSnapshot seen = world.Published();
  EXPECT_EQ(seen.version >> 32, 9u);
  EXPECT_GT(UpdatesOf(seen.version), checkpoint.updates);
  EXPECT_TRUE(AllFinite(seen.value.as<float>()));
}

TEST(LearnerNodeTest, PublishesRollbackAsNewerVersion) {
  const Armed armed("learner.weight:6");  // right after the publication of five
  TrainingConfig config = WorldConfig();
  config.run.max_updates = 6;
  LearnerWorld world(config);
  const WeightSnapshot first = (world.Rounds(10), world.Published());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  const WeightSnapshot last = world.Published();
  EXPECT_EQ(UpdatesOf(last.version), 7u);
  EXPECT_TRUE(std::ranges::equal(last.value.bytes(), first.value.bytes()));
}

TEST(LearnerNodeTest, FailsWithOriginOfRepeatedBadValues) {
  const std::pair<const char*, const char*> cases[] = {
      {"learner.gradient:30+:inf", "the gradient of layers.0.weight[0] is inf"},
      {"learner.weight:30+", "the weight layers.0.weight[0] is nan"}};
  for (const auto& [order, origin] : cases) {
    const Armed armed(order);
    TrainingConfig config = WorldConfig();
    config.replay.samples_per_insert = 0;
    LearnerWorld world(config);
    world.Insert(200);
    EXPECT_FALSE(world.Rounds(2000));
    EXPECT_EQ(world.node().result().code(), Code::kCancelled);
    const std::string why = world.node().result().message();
    for (const char* part : {origin, "after 3 rollbacks", "learner.max_grad_norm"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
}

}  // namespace
}  // namespace troop
