#include "apps/planner/mesh_planner.h"

#include <gtest/gtest.h>

#include "fleet/config/role_configs.h"
#include "fleet/launcher/resource_estimate.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

// BERT of 47 words, 32 numbers, 2 layers, 4 heads, 48 inner numbers, 24 positions.
Config Small() { return test::SupervisedRunConfig("bert"); }

const MeshProfile kProfile{
    .compute_s = 0.8, .step_s = 0.04, .tokens = 96, .labels = 12, .link = {1e-3, 1e-6}, .cores = 4};

TEST(PlanTest, SingleLearnerTakesMeasuredTime) {
  const auto plan = PlanMesh(Small(), kProfile, 1, 1);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_DOUBLE_EQ(plan->seconds(), 0.84);
  EXPECT_EQ(plan->bytes, 0);
}

TEST(PlanTest, DataParallelPlanIncludesGradients) {
  const auto plan = PlanMesh(Small(), kProfile, 4, 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_DOUBLE_EQ(plan->compute_s, 0.2);
  EXPECT_DOUBLE_EQ(plan->step_s, 0.04);
  // Three halves of the parameters, 4 bytes each.
  const double sent = 1.5 * 4 * double(ParameterCount(**MakeTextModel(ModelSetupOf(Small()))));
  EXPECT_DOUBLE_EQ(plan->bytes, sent);
  // Backward takes 0.1333 s of the way, which is more than the embeddings leave over.
  const double travel = 1e-3 + sent * 1e-6;
  EXPECT_NEAR(plan->gradient_s, std::max(travel - 0.4 / 3, travel * 1504.0 / (sent / 6)), 1e-9);
  EXPECT_EQ(plan->tensor_s, 0);
}

TEST(PlanTest, TensorParallelPlanIncludesActivations) {
  const auto plan = PlanMesh(Small(), kProfile, 1, 2);
  ASSERT_TRUE(plan.ok());
  EXPECT_DOUBLE_EQ(plan->compute_s, 0.4);
  EXPECT_DOUBLE_EQ(plan->step_s, 0.02);
  // Activations exchanged: of 96 x 32 values, four in the first layer, one in the last layer and
  // one after the embeddings; the last layer's other three have the 12 rows that the head reads.
  const double exchanged = (6 * 96 + 3 * 12) * 32 * 4.0;
  EXPECT_DOUBLE_EQ(plan->bytes, exchanged);
  EXPECT_NEAR(plan->tensor_s, 9 * 1e-3 + exchanged * 1e-6, 1e-9);
  EXPECT_EQ(plan->gradient_s, 0);
}

TEST(PlanTest, ParameterServerPlanIncludesPushAndPull) {
  Config config = Small();
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.shards = 2;
  config.paramserver.mode = SyncMode::kBsp;
  const double value = 4 * double(ParameterCount(**MakeTextModel(ModelSetupOf(config))));
  const auto plan = [&](std::int64_t dp, std::int64_t tp) {
    const auto made = PlanMesh(config, kProfile, dp, tp);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *made;
  };
  const MeshPlan one = plan(1, 1);
  EXPECT_DOUBLE_EQ(one.compute_s, 0.8);
  EXPECT_DOUBLE_EQ(one.bytes, value);
  EXPECT_DOUBLE_EQ(one.step_s, 0);
  EXPECT_NEAR(one.gradient_s, 2 * (1e-3 + value * 1e-6) + 0.04 / 2, 1e-9);
  // A shard has half of four workers' bytes.
  EXPECT_NEAR(plan(4, 1).gradient_s, 2 * (1e-3 + 2 * value * 1e-6) + 0.04 / 2, 1e-9);
  config.paramserver.mode = SyncMode::kAsync;  // a step for each
  EXPECT_NEAR(plan(4, 1).gradient_s, 2 * (1e-3 + 2 * value * 1e-6) + 4 * 0.04 / 2, 1e-9);
  config.paramserver.compression = GradientCodec::kBf16;
  config.paramserver.push_every = 4;
  config.paramserver.pull_every = 2;
  const double travel = (1e-3 + value / 2 * 1e-6) / 4 + (1e-3 + value * 1e-6) / 2;
  EXPECT_NEAR(plan(1, 1).gradient_s, travel + 0.04 / 2 / 4, 1e-9);
  EXPECT_DOUBLE_EQ(plan(1, 1).bytes, value / 2 / 4);
  // The first of two parts gives and takes the other's half.
  const MeshPlan cut = plan(1, 2);
  config.learner.sync = LearnerSync::kAllReduce;
  EXPECT_NEAR(cut.tensor_s - plan(1, 2).tensor_s, 2 * (1e-3 + value / 2 * 1e-6), 1e-9);
}

TEST(PlanTest, LearnersBeyondCoresTakeTurns) {
  MeshProfile one = kProfile;
  one.cores = 1;
  const auto plan = PlanMesh(Small(), one, 2, 2);
  ASSERT_TRUE(plan.ok());
  EXPECT_DOUBLE_EQ(plan->compute_s, 0.8);
}

// Two machines of four cores each, on a link that is a hundred times slower.
TEST(PlanTest, LearnersAcrossMachinesUseLinkBetween) {
  MeshProfile two = kProfile;
  two.machines = 2;
  two.far = {1e-1, 1e-4};
  const double value = 4 * double(ParameterCount(**MakeTextModel(ModelSetupOf(Small()))));
  // Two have room on one machine; with a core each they are on both.
  MeshProfile narrow = two;
  narrow.cores = 1;
  const auto near = PlanMesh(Small(), two, 2, 1), far = PlanMesh(Small(), narrow, 2, 1);
  ASSERT_TRUE(near.ok() && far.ok());
  EXPECT_EQ(far->bytes, near->bytes);
  EXPECT_LT(near->gradient_s, value * 1e-6);
  EXPECT_GT(far->gradient_s, value * 1e-4 - 0.4);
  // A model of four parts is on one machine, and what its parts exchange stays there; both models'
  // gradients go over the link.
  const auto models = PlanMesh(Small(), two, 2, 4), alone = PlanMesh(Small(), kProfile, 1, 4);
  ASSERT_TRUE(models.ok() && alone.ok());
  EXPECT_GT(models->gradient_s, 1e-1);
  EXPECT_LT(models->tensor_s, alone->tensor_s);  // of half as many tokens
  // Each machine has its own cores, so ranks do not share them.
  EXPECT_DOUBLE_EQ(models->compute_s, 0.1);
  // One of four parts on two machines: parts meet over the link.
  narrow.cores = 2;
  const auto across = PlanMesh(Small(), narrow, 1, 4), inside = PlanMesh(Small(), two, 1, 4);
  ASSERT_TRUE(across.ok() && inside.ok());
  EXPECT_NEAR(across->tensor_s, 100 * alone->tensor_s, 1e-9);
  EXPECT_EQ(inside->tensor_s, alone->tensor_s);
}

// Tensor-parallel ranks exchange half the bytes in bf16.
TEST(PlanTest, Bf16HalvesExchangedBytes) {
  MeshProfile halves = kProfile;
  halves.element_bytes = 2;
  const auto plan = PlanMesh(Small(), halves, 1, 2), whole = PlanMesh(Small(), kProfile, 1, 2);
  ASSERT_TRUE(plan.ok() && whole.ok());
  EXPECT_DOUBLE_EQ(plan->bytes, whole->bytes / 2);
}

TEST(PlanTest, ListsAllowedMeshesFastestFirst) {
  const auto plans = PlanMeshes(Small(), kProfile, 6);
  ASSERT_TRUE(plans.ok());
  // Four heads are for at most four parts: 6 + 3 + 2 + 1.
  EXPECT_EQ(plans->size(), 12u);
  for (std::size_t i = 1; i < plans->size(); ++i) {
    EXPECT_LE((*plans)[i - 1].seconds(), (*plans)[i].seconds());
  }
  EXPECT_FALSE(PlanMesh(Small(), kProfile, 1, 5).ok());
}

TEST(PlanTest, MeasuresProfileFromRealUpdates) {
  const auto profile = ProfileMesh(Small(), 3);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_GT(profile->compute_s, 0);
  EXPECT_GT(profile->step_s, 0);
  EXPECT_GT(profile->tokens, 24);  // 12 reviews, two ends each
  EXPECT_EQ(profile->labels, 12);
  EXPECT_GT(profile->link.latency_s, 0);
  EXPECT_GT(profile->link.s_per_byte, 0);
  EXPECT_EQ(profile->gpu, "");
  EXPECT_GE(profile->cores, 1);
}

TEST(PlanTest, PlansRunAtItsMesh) {
  Config config = Small();
  config.fleet.learners = 2;
  config.mesh = {.dp = 1, .tp = 2};
  const auto plan = PlanRun(config);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->tp, 2);
  EXPECT_GT(plan->compute_s, 0);
  EXPECT_GT(plan->tensor_s, 0);
  EXPECT_EQ(plan->gradient_s, 0);
}

// Before any process starts, where this machine's learners would look for it.
TEST(PlanTest, RejectsMissingGpuBeforeStart) {
  Config config = Small();
  config.learner.device = DeviceChoice::kCuda;
  const Status status = CheckMachine(config);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("learner.device is \"cuda\""), std::string::npos);
  config.fleet.external_roles = {"learner"};
  EXPECT_TRUE(CheckMachine(config).ok());
  config.fleet.external_roles.clear();
  config.fleet.engine = LaunchEngine::kSlurm;
  EXPECT_TRUE(CheckMachine(config).ok());
}

TEST(PlanTest, LstmIsNeverTensorParallel) {
  Config config = Small();
  config.model.architecture = ModelArchitecture::kLstm;
  config.model.pretrained = "";
  const auto plans = PlanMeshes(config, kProfile, 4);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  EXPECT_EQ(plans->size(), 4u);
  for (const MeshPlan& plan : *plans) EXPECT_EQ(plan.tp, 1);
}

TEST(PlanTest, ReinforcementLearningRunHasNoMesh) { EXPECT_EQ(PlanCommand(Config(), {}), 2); }

}  // namespace
}  // namespace troop
