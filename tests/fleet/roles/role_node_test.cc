#include "fleet/roles/role_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "fleet/config/resolve_supervised.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

using testing::HasSubstr;

EnvSpec Spec(std::int64_t actions, const TensorSpec& observation) {
  return {.id = "Mine-v0",
          .observation = observation,
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = actions}};
}

TEST(SameEnvironmentTest, RejectsOtherShapeOrActionsNamingBoth) {
  const EnvSpec here = Spec(4, {DType::kF32, {8}}), there = Spec(6, {DType::kF32, {8}});
  EXPECT_TRUE(CheckSameEnv(here, here, "other").ok());
  const Status actions = CheckSameEnv(here, there, "other");
  EXPECT_EQ(actions.code(), Code::kInvalidArgument);  // exit code 2: it is not started again
  for (const char* part : {"Mine-v0", "on other", "4 actions", "6 actions"}) {
    EXPECT_THAT(actions.message(), HasSubstr(part));
  }
  const Status shape = CheckSameEnv(here, Spec(4, {DType::kU8, {84, 84}}), "other");
  EXPECT_THAT(shape.message(), HasSubstr("f32[8]"));
  EXPECT_THAT(shape.message(), HasSubstr("u8[84, 84]"));
  // Limits of time and the like are the run's business, not the network's.
  EnvSpec longer = here;
  longer.max_episode_steps = 7;
  EXPECT_TRUE(CheckSameEnv(here, longer, "other").ok());
}

// An environment with another source took part unnoticed, where its shape was the same.
TEST(SameEnvironmentTest, RejectsOtherCodeNamingBoth) {
  EnvSpec here = Spec(4, {DType::kF32, {8}}), there = here;
  here.code = "a plug-in of 10 bytes, checksum 00000001";
  EXPECT_TRUE(CheckSameEnv(here, there, "other").ok());  // unknown
  there.code = here.code;
  EXPECT_TRUE(CheckSameEnv(here, there, "other").ok());
  there.code = "a plug-in of 10 bytes, checksum 00000002";
  const Status other = CheckSameEnv(here, there, "other");
  EXPECT_EQ(other.code(), Code::kInvalidArgument);  // exit code 2: it is not started again
  EXPECT_THAT(other.message(), HasSubstr("on other: environment Mine-v0 is " + here.code +
                                         " here, but " + there.code + " in the run"));
}

TEST(SameEnvironmentTest, DistinguishesContinuousFromDiscreteActions) {
  const EnvSpec here = Spec(2, {DType::kF32, {8}});
  EnvSpec there = here;
  there.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1, -1}, .high = {1, 1}};
  EXPECT_THAT(CheckSameEnv(here, there, "other").message(), HasSubstr("actions of 2 values"));
}

// The policy is bounded by the coordinator's bounds, and the network scales by its scale.
TEST(SameEnvironmentTest, RejectsOtherActionBoundsOrScale) {
  EnvSpec here = Spec(2, {DType::kU8, {8}});
  here.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1, -1}, .high = {1, 1}};
  EnvSpec there = here;
  EXPECT_TRUE(CheckSameEnv(here, there, "other").ok());
  there.action.high[1] = 2;
  for (const char* part : {"on other has action[1] in [-1, 1]", "has action[1] in [-1, 2]"}) {
    EXPECT_THAT(CheckSameEnv(here, there, "other").message(), HasSubstr(part));
  }
  there = here;
  there.observation_scale = 0.5f;
  EXPECT_THAT(CheckSameEnv(here, there, "other").message(), HasSubstr("scaled by 0.5"));
}

// Its process ended, and the coordinator waited for it for seconds: no other process could have its
// slot.
TEST(RoleNodeTest, ReleasesSlotWithReasonWhenStartFails) {
  const auto hub = MakeSimHub();
  const auto there = hub->MakeNetwork(), here = hub->MakeNetwork();
  const auto run = MakeMemoryStorage();
  auto coordinator = *Coordinator::Make(
      {.config = Budget(1000), .run = run.get(), .listen = [](Role, std::int32_t) {
         return std::string();
       }});
  const auto listener = *there->Listen("inproc://coordinator", coordinator.get());
  InlineExecutor executor;
  RoleNode node({.role = Role::kLearner,
                 .coordinator = "inproc://coordinator",
                 .network = here.get(),
                 .executor = &executor,
                 .storage = [](const Config&) -> Result<Storage*> {
                   return NotFound("the run's folder is not here");
                 }});
  StepStatus turn;
  Time now{Seconds(10)};
  for (int i = 0; i < 1000 && turn.what != StepStatus::kDone; ++i, now += Milliseconds(1)) {
    there->Pump(now);
    coordinator->Step(now);
    here->Pump(now);
    turn = node.Step(now);
  }
  EXPECT_EQ(node.result().code(), Code::kNotFound);
  EXPECT_FALSE(node.unanswered());
  EXPECT_TRUE(coordinator->members().empty());
  const auto roles = coordinator->roles();
  EXPECT_TRUE(std::ranges::any_of(roles, [](const RoleView& role) {
    return role.role == Role::kLearner && role.last_error == "the run's folder is not here";
  }));
}

// Jobs run when the test says so.
class HeldExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    work_ = std::move(work);
    return Job{1};
  }
  bool TakeDone(Job) override { return std::exchange(done_, false); }
  bool holds() const { return bool(work_); }
  void Run() { std::exchange(work_, nullptr)(), done_ = true; }

 private:
  std::function<void()> work_;
  bool done_ = false;
};

// Former fault: a role that read its data for fleet.stall_timeout_s was killed as hung, and its
// successor, too.
TEST(RoleNodeTest, SendsHeartbeatsWhileItReadsData) {
  Config config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.model.architecture = ModelArchitecture::kCnn;
  config.data.images = TROOP_SOURCE_DIR "/tests/fixtures/images/idx";
  config.data.validation_split = 0.5;
  config.run.epochs = 1;
  const Status resolved = ResolveSupervised(&config);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  const auto hub = MakeSimHub();
  const auto there = hub->MakeNetwork(), here = hub->MakeNetwork();
  const auto run = MakeMemoryStorage();
  auto coordinator =
      *Coordinator::Make({.config = config, .run = run.get(), .listen = [](Role, std::int32_t) {
                            return std::string();
                          }});
  const auto listener = *there->Listen("inproc://coordinator", coordinator.get());
  HeldExecutor executor;
  RoleNode node({.role = Role::kEvaluator,
                 .coordinator = "inproc://coordinator",
                 .network = here.get(),
                 .executor = &executor});
  Time now{Seconds(10)};
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i, now += Milliseconds(10)) {
      there->Pump(now);
      coordinator->Step(now);
      here->Pump(now);
      ASSERT_NE(node.Step(now).what, StepStatus::kDone) << node.result().message();
    }
  };
  // Longer than fleet.stall_timeout_s.
  steps(6000);
  EXPECT_TRUE(executor.holds());
  EXPECT_FALSE(node.playing());
  ASSERT_EQ(coordinator->members().size(), 1u);
  EXPECT_LT(coordinator->members()[0].heartbeat_age_s, 2);
  executor.Run();
  steps(10);
  EXPECT_TRUE(node.playing());
}

TEST(RoleNodeTest, EndsWhenCoordinatorDoesNotAnswer) {
  const auto hub = MakeSimHub();
  const auto here = hub->MakeNetwork();
  RoleNode node({.role = Role::kActor, .coordinator = "inproc://none", .network = here.get()});
  Time now{Seconds(10)};
  EXPECT_EQ(node.Step(now).what, StepStatus::kIdle);
  now += Seconds(31);
  here->Pump(now);
  EXPECT_EQ(node.Step(now).what, StepStatus::kDone);
  EXPECT_TRUE(node.unanswered());
}

}  // namespace
}  // namespace troop
