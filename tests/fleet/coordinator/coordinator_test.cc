#include "fleet/coordinator/coordinator.h"

#include <gtest/gtest.h>

#include "core/storage/json.h"
#include "core/tensor/trajectory.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "net/control/status_reply.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

TEST(CoordinatorTest, GrantsExactlyBudget) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t a = world.Join(Role::kActor, 0), b = world.Join(Role::kActor, 1);
  EXPECT_EQ(world.ActorBeat(0, a, 0, 700).steps_granted, 700);
  const HeartbeatReply second = world.ActorBeat(1, b, 0, 700);
  EXPECT_EQ(second.steps_granted, 300);
  EXPECT_TRUE(second.steps_over);
  EXPECT_EQ(world.ActorBeat(0, a, 700, 1400).steps_granted, 700);
  EXPECT_EQ(world.coordinator().phase(), Phase::kRunning);
  EXPECT_EQ(world.ActorBeat(1, b, 300, 0).phase, Phase::kDraining);
  EXPECT_EQ(world.coordinator().View().steps, 1000);
}

TEST(CoordinatorTest, RegrantsStepsLostByRestartExactly) {
  CoordinatorWorld world(Budget(1000));
  std::uint64_t a = world.Join(Role::kActor, 0);
  const std::uint64_t b = world.Join(Role::kActor, 1);
  world.ActorBeat(0, a, 0, 600);
  world.ActorBeat(1, b, 0, 1000);  // the other 400
  world.ActorBeat(0, a, 250, 600);
  a = world.Join(Role::kActor, 0);  // restarted: 250 done, 350 lost
  EXPECT_EQ(world.ActorBeat(0, a, 0, 1000).steps_granted, 350);
  world.ActorBeat(1, b, 400, 0);
  EXPECT_EQ(world.coordinator().phase(), Phase::kRunning);
  world.ActorBeat(0, a, 350, 0);
  EXPECT_EQ(world.coordinator().View().steps, 1000);
  EXPECT_EQ(world.coordinator().phase(), Phase::kDraining);
}

// Its leases had returned to the pool and were granted to another: the sum ran over the budget.
TEST(CoordinatorTest, IgnoresHeartbeatAfterProcessExit) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t a = world.Join(Role::kActor, 0), b = world.Join(Role::kActor, 1);
  world.ActorBeat(0, a, 100, 600);
  world.ActorBeat(0, a, 100, 600);
  world.coordinator().OnMemberExit(Role::kActor, 0, kProcess);
  EXPECT_EQ(world.ActorBeat(1, b, 0, 2000).steps_granted, 900);
  const auto late = world.Beat(Role::kActor, 0, a, {.steps_done = 600, .steps_wanted = 2000});
  EXPECT_EQ(late.status().code(), Code::kAborted);
  world.ActorBeat(1, b, 900, 2000);
  EXPECT_EQ(world.coordinator().View().steps, 1000);
}

// A process that was replaced ended late: its successor was taken for gone.
TEST(CoordinatorTest, ExitOfReplacedProcessKeepsSuccessor) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t actor = world.Join(Role::kActor, 0);
  world.coordinator().OnMemberExit(Role::kActor, 0, kProcess + 1);
  EXPECT_EQ(world.ActorBeat(0, actor, 0, 100).steps_granted, 100);
  world.coordinator().OnMemberExit(Role::kActor, 0, kProcess);
  EXPECT_EQ(world.Beat(Role::kActor, 0, actor).status().code(), Code::kAborted);
}

TEST(CoordinatorTest, TracksWhetherNewestCheckpointIsFinal) {
  CoordinatorWorld world(Budget(1000));
  std::uint64_t learner = world.Join(Role::kLearner);
  const HeartbeatRequest last{
      .checkpoint = "checkpoints/7", .checkpoint_updates = 7, .checkpoint_final = true};
  ASSERT_TRUE(world.Beat(Role::kLearner, 0, learner, last).ok());
  EXPECT_TRUE(world.coordinator().View().checkpoint_final);
  learner = world.Join(Role::kLearner);  // resumes from it
  const HeartbeatRequest resumed{.checkpoint = "checkpoints/7", .checkpoint_updates = 7};
  ASSERT_TRUE(world.Beat(Role::kLearner, 0, learner, resumed).ok());
  EXPECT_FALSE(world.coordinator().View().checkpoint_final);
}

TEST(CoordinatorTest, CapsStepsAtGrant) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t a = world.Join(Role::kActor, 0);
  world.ActorBeat(0, a, 0, 100);
  world.ActorBeat(0, a, 5000, 100);
  EXPECT_EQ(world.coordinator().View().steps, 100);
  world.ActorBeat(0, a, -7, 100);
  EXPECT_EQ(world.coordinator().View().steps, 100);
}

TEST(CoordinatorTest, RepeatedRequestGetsSameGrant) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t a = world.Join(Role::kActor, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(world.ActorBeat(0, a, 0, 300).steps_granted, 300);
}

TEST(CoordinatorTest, ResumedRunGrantsRemainingSteps) {
  CoordinatorWorld world(Budget(1000), 800);
  const std::uint64_t a = world.Join(Role::kActor, 0);
  EXPECT_EQ(world.ActorBeat(0, a, 0, 1000).steps_granted, 200);
  EXPECT_EQ(world.ActorBeat(0, a, 200, 1000).phase, Phase::kDraining);
  EXPECT_EQ(world.coordinator().View().steps, 1000);
}

TEST(CoordinatorTest, IncarnationsIncreaseAcrossRestarts) {
  CoordinatorWorld world(Budget(1000));
  std::uint64_t last = 0;
  for (int restart = 0; restart < 3; ++restart) {
    for (const auto& [role, index] :
         {std::pair{Role::kActor, 0}, {Role::kActor, 1}, {Role::kReplay, 0}, {Role::kActor, 0}}) {
      const std::uint64_t incarnation = world.Join(role, index);
      EXPECT_GT(incarnation, last);
      last = incarnation;
    }
    world.Restart();
  }
}

TEST(CoordinatorTest, RejectsDamagedIncarnationFile) {
  const std::string longer(100, '1');
  for (const std::string text :
       {"", "x", "12 monkeys", "-3", "0", "99999999999999999999999", longer.c_str()}) {
    CoordinatorWorld world(Budget(1000));
    ASSERT_TRUE(world.run()->WriteAtomic("incarnation", text).ok());
    EXPECT_EQ(world.Make().status().code(), Code::kDataLoss) << text;
  }
  const auto run = MakeMemoryStorage();
  const auto missing =
      Coordinator::Make({.config = Budget(1000), .run = run.get(), .resume_checkpoint = "c/1"});
  EXPECT_EQ(missing.status().code(), Code::kDataLoss) << "a run that was there had one";
  CoordinatorWorld world(Budget(1000));
  ASSERT_TRUE(world.run()->WriteAtomic("incarnation", "41\n").ok());  // as an editor leaves it
  world.Restart();
  EXPECT_EQ(world.Join(Role::kActor), 41u);
}

TEST(CoordinatorTest, AbortsHeartbeatOfOlderIncarnation) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t old = world.Join(Role::kActor, 0);
  const std::uint64_t young = world.Join(Role::kActor, 0);
  EXPECT_EQ(world.Beat(Role::kActor, 0, old).status().code(), Code::kAborted);
  EXPECT_TRUE(world.Beat(Role::kActor, 0, young).ok());
  EXPECT_EQ(world.Beat(Role::kEvaluator, 0, 1).status().code(), Code::kAborted);  // never joined
}

// A stranger that said a larger number than was ever issued kept the true one out for good, and so
// did one that took the name of a role that registers.
TEST(CoordinatorTest, UnissuedIncarnationFencesNothing) {
  constexpr std::uint64_t kLarge = ~std::uint64_t{0};
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t first = world.Join(Role::kActor);
  EXPECT_EQ(world.Beat(Role::kActor, 0, kLarge).status().code(), Code::kAborted);
  EXPECT_EQ(world.Beat(Role::kActor, 1, kLarge).status().code(), Code::kAborted);
  EXPECT_EQ(world.Beat(Role::kCoordinator, 0, 1).status().code(), Code::kAborted);
  EXPECT_EQ(world.ActorBeat(0, first, 0, 10).steps_granted, 10);
  const Origin newcomer{
      .role = Role::kTool, .index = int(Role::kActor) * 1000 + 1, .incarnation = kLarge};
  EXPECT_FALSE(world.Call<StatusReply>(MessageType::kMemberHeartbeat, 0, newcomer).ok());
  const std::uint64_t second = world.Join(Role::kActor, 1);
  const HeartbeatReply reply = world.ActorBeat(1, second, 0, 10);
  EXPECT_EQ(reply.issued.at(std::size_t(Role::kActor)), second);
}

TEST(CoordinatorTest, RejectsHeartbeatWithContentOfAnotherRole) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t actor = world.Join(Role::kActor), learner = world.Join(Role::kLearner);
  const auto refused = [&](Role role, std::uint64_t incarnation, const HeartbeatRequest& beat) {
    return world.Beat(role, 0, incarnation, beat).status().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused(Role::kActor, actor, {.checkpoint = "checkpoints/9"}));
  EXPECT_TRUE(refused(Role::kLearner, learner, {.evaluations = {{.return_mean = 1e9}}}));
  EXPECT_TRUE(refused(Role::kActor, actor, {.fleet_epoch = 2}));
  EXPECT_TRUE(refused(Role::kLearner, learner, {.shard_move = 3}));
  EXPECT_TRUE(refused(Role::kParamServer, world.Join(Role::kParamServer), {.shard_term = 1000}));
  EXPECT_EQ(world.coordinator().View().checkpoint, "");
  EXPECT_EQ(world.ActorBeat(0, actor, 0, INT64_MIN).steps_granted, 0);
  HeartbeatRequest odd;
  odd.metrics["learner/version"].value = 1e300;
  EXPECT_TRUE(world.Beat(Role::kLearner, 0, learner, odd).ok());
  EXPECT_EQ(world.coordinator().View().updates, 0u);
}

TEST(CoordinatorTest, RejectsRolesOutsideConfig) {
  CoordinatorWorld world(Budget(1000, 2));
  for (const auto& [role, index] : {std::pair{Role::kActor, 2},
                                    {Role::kActor, -2},
                                    {Role::kLearner, -1},
                                    {Role::kReplay, 1},
                                    {Role::kTool, 0},
                                    {Role::kCoordinator, 0},
                                    {Role::kInference, 0}}) {
    EXPECT_EQ(world.Register(role, index).status().code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(world.coordinator().View().members.empty());
}

TEST(CoordinatorTest, RejectsOtherProgramVersion) {
  CoordinatorWorld world(Budget(1000));
  const Status status = world.Register(Role::kActor, 0, "99.0").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("99.0"), std::string::npos) << status.message();
}

TEST(CoordinatorTest, RestartedRoleKeepsItsEndpoint) {
  CoordinatorWorld world(Budget(1000));
  const std::uint64_t first = world.Join(Role::kReplay);
  ASSERT_TRUE(world.Beat(Role::kReplay, 0, first, {.endpoint = "tcp://127.0.0.1:4711"}).ok());
  EXPECT_EQ(world.Register(Role::kReplay)->listen, "tcp://127.0.0.1:4711");
  // That one died before its first beat: the next must not get another port.
  EXPECT_EQ(world.Register(Role::kReplay)->listen, "tcp://127.0.0.1:4711");
}

TEST(CoordinatorTest, PhasesOnlyAdvance) {
  CoordinatorWorld world(Budget(100, 1));
  const std::uint64_t actor = world.Join(Role::kActor), learner = world.Join(Role::kLearner),
                      evaluator = world.Join(Role::kEvaluator);
  std::vector<Phase> seen;
  const auto look = [&] { seen.push_back(world.coordinator().phase()); };
  look();
  world.ActorBeat(0, actor, 0, 100);
  look();
  world.ActorBeat(0, actor, 100, 100);
  look();
  ASSERT_TRUE(world.Beat(Role::kLearner, 0, learner, {.finished = true}).ok());
  look();
  const std::uint64_t again = world.Join(Role::kLearner);  // restarted, not finished
  ASSERT_TRUE(world.Beat(Role::kLearner, 0, again).ok());
  look();
  EvaluationReport report{.episodes = 3, .return_mean = 1, .final = true};
  ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {report}}).ok());
  look();
  EXPECT_EQ(seen, (std::vector<Phase>{Phase::kRunning, Phase::kRunning, Phase::kDraining,
                                      Phase::kEvaluating, Phase::kEvaluating, Phase::kDone}));
}

TEST(CoordinatorTest, EndsWhenAllMembersStoppedOrLeft) {
  CoordinatorWorld world(Budget(100, 1));
  const std::uint64_t actor = world.Join(Role::kActor);
  world.Join(Role::kReplay);
  world.coordinator().Drain();
  EXPECT_NE(world.coordinator().Step(Time(Seconds(10))).what, StepStatus::kDone);
  EXPECT_TRUE(world.ActorBeat(0, actor, 0, 0).stop);
  EXPECT_NE(world.coordinator().Step(Time(Seconds(10))).what, StepStatus::kDone);
  world.coordinator().OnMemberExit(Role::kReplay, 0, kProcess);
  EXPECT_EQ(world.coordinator().Step(Time(Seconds(10))).what, StepStatus::kDone);
}

// A stopped launcher, continued a minute later, took the fleet for hung and killed all of it.
TEST(CoordinatorTest, OwnPauseDoesNotCountAsRoleSilence) {
  CoordinatorWorld world(Budget(100, 1));
  world.Join(Role::kActor);
  world.Advance(Milliseconds(100));
  world.Advance(Seconds(60));
  EXPECT_LT(world.coordinator().View().members[0].heartbeat_age_s, 1);
  for (int i = 0; i < 50; ++i) world.Advance(Milliseconds(100));
  EXPECT_NEAR(world.coordinator().View().members[0].heartbeat_age_s, 5, 0.01);
}

// Regression: a member on another machine, or one that registered after its process died, has no
// launcher to report its exit. Its steps stayed leased, and the run waited permanently.
TEST(CoordinatorTest, RemovesSilentMemberAndRegrantsSteps) {
  Config config = Budget(1000);
  config.fleet.stall_timeout_s = 5;
  CoordinatorWorld world(config);
  const std::uint64_t gone = world.Join(Role::kActor, 0), here = world.Join(Role::kActor, 1);
  EXPECT_EQ(world.ActorBeat(0, gone, 0, 700).steps_granted, 700);
  EXPECT_EQ(world.ActorBeat(0, gone, 200, 0).steps_granted, 700);
  const auto pass = [&](int tenths) {
    for (; tenths > 0; --tenths) {
      world.Advance(Milliseconds(100));
      world.ActorBeat(1, here, 0, 0);
    }
    return world.coordinator().View().members.size();
  };
  EXPECT_EQ(pass(55), 2u);  // a supervisor may still end it, and say so
  EXPECT_EQ(pass(15), 1u);
  EXPECT_EQ(world.ActorBeat(1, here, 0, 1000).steps_granted, 800);
  EXPECT_EQ(world.Beat(Role::kActor, 0, gone, {.steps_done = 700}).status().code(), Code::kAborted);
  EXPECT_EQ(world.coordinator().View().steps, 200);
  world.coordinator().Drain();
  EXPECT_TRUE(world.ActorBeat(1, here, 0, 0).stop);
  EXPECT_TRUE(world.coordinator().all_members_left());
}

TEST(CoordinatorTest, CountsRepeatedEvaluationOnce) {
  CoordinatorWorld world(Budget(100, 1));
  const std::uint64_t evaluator = world.Join(Role::kEvaluator);
  const EvaluationReport one{.weights_version = 1, .episodes = 3, .return_mean = 1};
  EvaluationReport two = one;
  two.weights_version = 2;
  ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {one}}).ok());
  ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {one, two}}).ok());
  EXPECT_EQ(world.coordinator().View().evaluations, (std::vector<EvaluationReport>{one, two}));
}

TEST(CoordinatorTest, KeepsCountersAndDropsGaugesOfDeadRole) {
  CoordinatorWorld world(Budget(100, 1));
  Metrics metrics;
  metrics.Count("actor/episodes", 5);
  metrics.Gauge("actor/inflight_inserts", 3, MetricKind::kGaugeSum);
  std::uint64_t actor = world.Join(Role::kActor);
  ASSERT_TRUE(world.Beat(Role::kActor, 0, actor, {.metrics = metrics.snapshot()}).ok());
  actor = world.Join(Role::kActor);
  ASSERT_TRUE(world.Beat(Role::kActor, 0, actor, {.metrics = metrics.snapshot()}).ok());
  world.coordinator().OnMemberExit(Role::kActor, 0, kProcess);
  const RunView view = world.coordinator().View();
  EXPECT_EQ(view.metrics.at("actor/episodes").value, 10);
  EXPECT_FALSE(view.metrics.contains("actor/inflight_inserts"));
}

// Learners that have each a part of a batch leave one by one: the last line's loss was that of a
// part alone.
TEST(CoordinatorTest, FinalRatiosCoverAllLearners) {
  Config config = Budget(100, 1);
  config.fleet.learners = 2;
  CoordinatorWorld world(config);
  std::uint64_t learners[2];
  for (int i = 0; i < 2; ++i) {
    Metrics metrics;
    metrics.Ratio("learner/loss", i, 4);
    learners[i] = world.Join(Role::kLearner, i);
    const HeartbeatRequest beat{.metrics = metrics.snapshot()};
    ASSERT_TRUE(world.Beat(Role::kLearner, i, learners[i], beat).ok());
  }
  const auto loss = [&] { return world.coordinator().View().metrics.at("learner/loss").value; };
  EXPECT_EQ(loss(), 0.5);
  world.coordinator().OnMemberExit(Role::kLearner, 1, kProcess);
  EXPECT_EQ(loss(), 0) << "it may come back, and others share the batch meanwhile";
  world.coordinator().Drain();
  EXPECT_EQ(loss(), 0.5);
}

// Regression: updates repeated after a failure counted twice, and so did those that a learner
// adopted.
TEST(CoordinatorTest, CountsUpdatesOfNewestWeights) {
  CoordinatorWorld world(Budget(100, 1));
  const auto beat = [&](std::uint64_t learner, double updates) {
    Metrics metrics;
    metrics.Gauge("learner/version", updates, MetricKind::kGaugeMax);
    metrics.Gauge("learner/updates", updates, MetricKind::kCounter);
    ASSERT_TRUE(world.Beat(Role::kLearner, 0, learner, {.metrics = metrics.snapshot()}).ok());
  };
  beat(world.Join(Role::kLearner), 50);
  EXPECT_EQ(world.coordinator().View().updates, 50u);
  world.coordinator().OnMemberExit(Role::kLearner, 0, kProcess);
  EXPECT_EQ(world.coordinator().View().updates, 50u);
  beat(world.Join(Role::kLearner), 40);
  EXPECT_EQ(world.coordinator().View().updates, 40u);
  EXPECT_EQ(world.coordinator().View().metrics.at("learner/updates").value, 90);
}

// The final weights of parameter shards include the last pushes, although no learner pulls them.
TEST(CoordinatorTest, CountsUpdatesOfFinallyEvaluatedWeights) {
  CoordinatorWorld world(Budget(100, 1));
  const std::uint64_t evaluator = world.Join(Role::kEvaluator);
  const EvaluationReport final{.weights_version = WeightsVersion(3, 70), .final = true};
  ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {final}}).ok());
  EXPECT_EQ(world.coordinator().View().updates, 70u);
}

// A run of 100 updates had 101 in its result: shards begin at version 1.
TEST(CoordinatorTest, CountsOneUpdateLessThanShardVersion) {
  Config config = Budget(100, 1);
  config.learner.sync = LearnerSync::kParamServer;
  CoordinatorWorld world(config);
  const std::uint64_t evaluator = world.Join(Role::kEvaluator);
  const EvaluationReport final{.weights_version = WeightsVersion(3, 71), .final = true};
  for (int told = 0; told < 2; ++told) {  // the first answer may have been lost
    ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {final}}).ok());
    EXPECT_EQ(world.coordinator().View().updates, 70u);
    EXPECT_EQ(world.coordinator().View().evaluations.size(), 1u);
  }
}

TEST(CoordinatorTest, EndsRunEarlyWhenSolved) {
  Config config = Budget(1000, 1);
  config.evaluator.stop_at_return = 0.5;
  CoordinatorWorld world(config);
  const std::uint64_t evaluator = world.Join(Role::kEvaluator);
  const EvaluationReport report{.episodes = 3, .return_mean = 0.6};
  ASSERT_TRUE(world.Beat(Role::kEvaluator, 0, evaluator, {.evaluations = {report}}).ok());
  EXPECT_EQ(world.coordinator().phase(), Phase::kDraining);
}

TEST(CoordinatorTest, ReportsStatusAsJson) {
  CoordinatorWorld world(Budget(1000, 1));
  const std::uint64_t actor = world.Join(Role::kActor);
  world.ActorBeat(0, actor, 0, 100);
  world.ActorBeat(0, actor, 60, 100);
  const auto reply = world.Call<StatusReply>(MessageType::kStatus, HeartbeatRequest{},
                                             {.role = Role::kTool, .incarnation = 1});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  const auto json = ParseJson(reply->json);
  ASSERT_TRUE(json.ok()) << reply->json;
  EXPECT_EQ(*json->Integer("steps"), 60);
  EXPECT_EQ(*json->String("phase"), "running");
  EXPECT_EQ(*json->Find("members")->array.at(0).String("role"), "actor-0");
}

TEST(CoordinatorTest, SendsEnvironmentSpecOnRegistration) {
  Config config = Budget(1000, 1);
  for (const char* id : {"CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v0"}) {
    config.env.id = id;
    CoordinatorWorld world(config);
    const auto reply = world.Register(Role::kLearner);
    ASSERT_TRUE(reply.ok()) << reply.status().ToString();
    const Result<EnvSpec> told = FromBody(reply->env);
    ASSERT_TRUE(told.ok()) << told.status().ToString();
    EXPECT_EQ(*told, (*MakeEnvironment(id, EnvOptionsOf(config)))->spec());
  }
}

TEST(CoordinatorTest, FailsForUnknownEnvironment) {
  Config config = Budget(1000, 1);
  config.env.id = "CartPol-v1";
  MemoryStorage run;
  EXPECT_EQ(Coordinator::Make({.config = config, .run = &run}).status().code(), Code::kNotFound);
}

TEST(CoordinatorTest, RejectsUnexpectedMessages) {
  CoordinatorWorld world(Budget(1000, 1));
  const Status status = world
                            .Call<StatusReply>(MessageType::kSample, HeartbeatRequest{},
                                               {.role = Role::kTool, .incarnation = 1})
                            .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
