#include "fleet/serial/serial_fleet.h"

#include <gtest/gtest.h>

#include "core/storage/crc32c.h"
#include "learners/checkpoint.h"
#include "tests/fleet/small_serial.h"

namespace troop {
namespace {

struct Outcome {
  RunView view;
  CheckpointState checkpoint;
  std::uint32_t hash = 0;  // of all that the learner would need to go on
};

Outcome Finish(SerialFleet* fleet, Storage* run) {
  int rounds = 0;
  while (fleet->Round()) {
    if (++rounds > 1'000'000) {
      ADD_FAILURE() << "the run does not end";
      break;
    }
  }
  EXPECT_TRUE(fleet->result().ok()) << fleet->result().ToString();
  Outcome outcome{.view = fleet->coordinator().View()};
  auto checkpoint = ReadCheckpoint(run, outcome.view.checkpoint);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  if (!checkpoint.ok()) return outcome;
  outcome.checkpoint = std::move(*checkpoint);
  for (const auto& [name, tensor] : outcome.checkpoint.state.tensors) {
    outcome.hash = outcome.hash * 31 + Crc32c(tensor.bytes());
  }
  return outcome;
}

Outcome Train(const Config& config) {
  const auto run = MakeMemoryStorage();
  auto fleet = SerialFleet::Make(config, run.get(), "", 0, 0);
  EXPECT_TRUE(fleet.ok()) << fleet.status().ToString();
  return Finish(fleet->get(), run.get());
}

TEST(SerialFleetTest, EqualSeedsGiveEqualBytesAndMetrics) {
  const Outcome a = Train(SmallSerial()), b = Train(SmallSerial());
  EXPECT_GT(a.checkpoint.updates, 200u);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.checkpoint.updates, b.checkpoint.updates);
  EXPECT_EQ(a.view.evaluations, b.view.evaluations);
  EXPECT_EQ(a.view.metrics.at("actor/episode_return_sum").value,
            b.view.metrics.at("actor/episode_return_sum").value);
}

TEST(SerialFleetTest, OtherSeedGivesOtherRun) {
  Config config = SmallSerial();
  config.seed = 2;
  EXPECT_NE(Train(config).hash, Train(SmallSerial()).hash);
}

TEST(SerialFleetTest, MaxUpdatesGivesSameHash) {
  Config config = SmallSerial();
  config.run.max_updates = 123;
  const Outcome a = Train(config), b = Train(config);
  EXPECT_EQ(a.checkpoint.updates, 123u);
  EXPECT_EQ(a.hash, b.hash);
}

TEST(SerialFleetTest, TakesExactlyBudgetedSteps) {
  for (const double total : {1000.0, 1001.0, 1007.0}) {  // 8 environments
    Config config = SmallSerial();
    config.run.total_steps = total;
    const Outcome outcome = Train(config);
    EXPECT_EQ(outcome.view.steps, std::int64_t(total));
    EXPECT_EQ(outcome.view.metrics.at("actor/steps").value, total);
    EXPECT_EQ(outcome.checkpoint.steps, std::int64_t(total));
  }
}

TEST(SerialFleetTest, StoppedRunContinuesToSameBudget) {
  Config config = SmallSerial();
  config.run.total_steps = 8000;
  const auto run = MakeMemoryStorage();
  auto first = SerialFleet::Make(config, run.get(), "", 0, 0);
  ASSERT_TRUE(first.ok());
  while ((*first)->coordinator().View().metrics["learner/updates"].value < 100) {
    ASSERT_TRUE((*first)->Round());
  }
  (*first)->Drain();
  const Outcome half = Finish(first->get(), run.get());
  EXPECT_LT(half.checkpoint.steps, 8000);
  const auto path = NewestCheckpoint(run.get());
  auto second =
      SerialFleet::Make(config, run.get(), *path, half.checkpoint.steps, half.checkpoint.updates);
  ASSERT_TRUE(second.ok());
  const Outcome whole = Finish(second->get(), run.get());
  EXPECT_EQ(whole.view.steps, 8000);
  EXPECT_GT(whole.checkpoint.updates, half.checkpoint.updates);
  EXPECT_EQ(whole.view.metrics.at("learner/updates").value, double(whole.checkpoint.updates));
}

TEST(SerialFleetTest, RolesFollowConfigServicesFirst) {
  Config config = SmallSerial();
  config.fleet.actors = 2;
  const std::vector<FleetRole> expected{{Role::kReplay, 0},  {Role::kParamServer, 0},
                                        {Role::kLearner, 0}, {Role::kActor, 0},
                                        {Role::kActor, 1},   {Role::kEvaluator, 0}};
  EXPECT_EQ(RolesOf(config), expected);
}

// The paddle catches every ball: what random play does in 3 of 10 episodes.
TEST(SerialFleetTest, LearnsCatch) {
  Config config = SmallSerial();
  config.env.id = "Catch-v0";
  config.network.layers[0].units = 64;
  config.replay.capacity_items = 20000;
  config.replay.min_items = 500;
  config.replay.samples_per_insert = 8;
  config.learner.batch_size = 32;
  config.run.total_steps = 20000;
  config.learner.target_update_every_updates = 100;
  const Outcome outcome = Train(config);
  ASSERT_FALSE(outcome.view.evaluations.empty());
  EXPECT_TRUE(outcome.view.evaluations.back().final);
  EXPECT_EQ(outcome.view.evaluations.back().return_mean, 1.0);
}

}  // namespace
}  // namespace troop
