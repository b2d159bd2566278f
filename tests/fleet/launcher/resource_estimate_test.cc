#include "fleet/launcher/resource_estimate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fleet/config/algorithm_advice.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

Config PoleConfig() {
  Config config;
  config.env.id = "CartPole-v1";
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 64;
  config.network.layers = {layer, layer};
  config.network.dueling = false;
  config.fleet.actors = 2;
  config.optimizer.type = OptimizerType::kAdam;
  return config;
}
constexpr std::int64_t kPoleParameters = 4 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2;

// Advice is printed, but is not an error.
TEST(MachineTest, AdvisesOnTargetsOfActorCritic) {
  Config config = PoleConfig();
  const auto printed = [&config] {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(CheckMachine(config).ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed(), "");
  config.env.id = "Pendulum-v1";
  config.learner.algorithm = AlgorithmKind::kTd3;
  EXPECT_EQ(printed(), "troop: " + AlgorithmAdvice(config) + "\n");
  config.learner.target_tau = 0.005;
  EXPECT_EQ(printed(), "");
}

// The padding of the flat buffer was counted.
TEST(MachineTest, CountsParametersWithoutPadding) {
  const auto needs = EstimateResources(PoleConfig());
  ASSERT_TRUE(needs.ok()) << needs.status().ToString();
  EXPECT_EQ(needs->parameters, kPoleParameters);
}

TEST(MachineTest, PredictsMemoryOfEachProcess) {
  const auto needs = EstimateResources(PoleConfig());
  ASSERT_TRUE(needs.ok());
  const double value = 4.0 * kPoleParameters;
  // Two sets of weights, a gradient, Adam's two moments; and more.
  EXPECT_GT(needs->processes.learner, 5 * value);
  EXPECT_LT(needs->processes.learner, 100e6);
  for (const double bytes :
       {needs->processes.actor, needs->processes.evaluator, needs->processes.paramserver}) {
    EXPECT_GE(bytes, 2 * value);
    EXPECT_LT(bytes, needs->processes.learner);
  }
  Config larger = PoleConfig();
  larger.learner.batch_size *= 8;
  EXPECT_GT(EstimateResources(larger)->processes.learner, needs->processes.learner);
  const auto text = DescribeRun(PoleConfig());
  ASSERT_TRUE(text.ok());
  for (const char* role : {"replay-0", "paramserver-0", "learner-0", "actor-1", "evaluator-0"}) {
    const std::size_t at = text->find(role);
    ASSERT_NE(at, std::string::npos) << role << *text;
    EXPECT_NE(text->substr(at, text->find('\n', at) - at).find("MiB"), std::string::npos) << *text;
  }
}

// Without actors and replay, nothing is counted for them, however large the replay would be.
TEST(MachineTest, OfflineRunHasNoReplay) {
  Config config = PoleConfig();
  config.replay.capacity_items = 1'000'000'000;
  EXPECT_GT(EstimateResources(config)->replay_bytes, 1e9);
  config.learner.demonstrations = "some episodes";
  config.learner.demonstration_share = 1;
  config.run.max_updates = 10;
  EXPECT_EQ(EstimateResources(config)->replay_bytes, 0);
  const auto text = DescribeRun(config);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->find("replay"), std::string::npos) << *text;
  EXPECT_EQ(text->find("actor"), std::string::npos) << *text;
}

// Each learner has a copy of all files of the dataset in memory, and no other role has one.
TEST(MachineTest, LearnersHoldRecordedEpisodes) {
  const TempFolder folder;
  Config config = PoleConfig();
  const ProcessBytes without = EstimateResources(config)->processes;
  const std::string a = folder.path() + "/a.episodes", b = folder.path() + "/b.episodes";
  for (const std::string& path : {a, b}) std::ofstream(path) << "";
  std::filesystem::resize_file(a, 3'000'000);
  std::filesystem::resize_file(b, 500);
  config.learner.demonstrations = folder.path();
  const ProcessBytes with = EstimateResources(config)->processes;
  EXPECT_EQ(with.learner - without.learner, 3'000'500);
  EXPECT_EQ(with.actor, without.actor);
  EXPECT_EQ(with.evaluator, without.evaluator);
  EXPECT_NE(DescribeRun(config)->find("the recorded episodes"), std::string::npos);
  EXPECT_TRUE(CheckMachine(config).ok());
  // A sparse file of 8 TiB, which nothing may try to read.
  std::filesystem::resize_file(b, std::uintmax_t{8} << 40);
  const Status refused = CheckMachine(config);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("take 8192.00 GiB in the memory of each of 1 learner"),
            std::string::npos)
      << refused.message();
}

// The endpoints were those of a temporary folder that was deleted again.
TEST(MachineTest, DryRunShowsEndpointPatterns) {
  Config config = PoleConfig();
  auto text = DescribeRun(config);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("troop-run-XXXXXX/replay-0.sock"), std::string::npos) << *text;
  config.fleet.transport = FleetTransport::kTcp;
  text = DescribeRun(config);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("tcp://127.0.0.1:PORT"), std::string::npos) << *text;
  EXPECT_NE(text->find("PORT: a free port"), std::string::npos) << *text;
}

}  // namespace
}  // namespace troop
