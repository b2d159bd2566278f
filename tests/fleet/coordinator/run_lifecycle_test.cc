#include "fleet/coordinator/run_lifecycle.h"

#include <gtest/gtest.h>

#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

Config Budget(double steps) {
  Config config;
  config.run.total_steps = steps;
  return config;
}

TEST(RunLifecycleTest, AdvancesThroughAllPhases) {
  const Config config = Budget(100);
  RunLifecycle run(&config, 0);
  StepLease lease;
  run.Advance({});
  EXPECT_EQ(run.phase(), Phase::kRunning);
  EXPECT_TRUE(run.running());
  run.leases().Grant(&lease, 100);
  run.RecordSteps(Role::kActor, 99, &lease);
  run.Advance({});
  EXPECT_EQ(run.phase(), Phase::kRunning);
  run.RecordSteps(Role::kActor, 100, &lease);
  run.Advance({});
  EXPECT_EQ(run.phase(), Phase::kDraining);
  EXPECT_FALSE(run.running());
  run.Advance({.learner_finished = true});
  EXPECT_EQ(run.phase(), Phase::kEvaluating);
  const EvaluationReport early, last{.final = true};
  run.Advance({.last_evaluation = &early, .learner_finished = true});
  EXPECT_EQ(run.phase(), Phase::kEvaluating);
  EXPECT_FALSE(run.over());
  run.Advance({.last_evaluation = &last, .learner_finished = true});
  EXPECT_EQ(run.phase(), Phase::kDone);
  EXPECT_TRUE(run.over());
}

TEST(RunLifecycleTest, PhaseNeverReturns) {
  const Config config = Budget(100);
  RunLifecycle run(&config, 100);
  run.Advance({.learner_finished = true});
  EXPECT_EQ(run.phase(), Phase::kEvaluating);
  run.Advance({.learner_finished = false});  // its successor has not finished
  EXPECT_EQ(run.phase(), Phase::kEvaluating);
}

TEST(RunLifecycleTest, EndsWithoutEvaluatorAfterLearner) {
  Config config = Budget(100);
  config.evaluator.enabled = false;
  RunLifecycle run(&config, 0);
  run.Advance({.learner_finished = true});
  EXPECT_EQ(run.phase(), Phase::kDone);
}

TEST(RunLifecycleTest, DrainsWhenSolved) {
  Config config = Budget(100);
  config.evaluator.stop_at_return = 0.5;
  RunLifecycle run(&config, 0);
  EvaluationReport report{.return_mean = 0.4};
  run.Advance({.last_evaluation = &report});
  EXPECT_EQ(run.phase(), Phase::kRunning);
  report.return_mean = 0.5;
  run.Advance({.last_evaluation = &report});
  EXPECT_EQ(run.phase(), Phase::kDraining);
}

TEST(RunLifecycleTest, DrainsAfterPatienceWithoutBetterEvaluation) {
  Config config = Budget(100);
  config.evaluator.early_stopping_patience = 2;
  RunLifecycle run(&config, 0);
  run.Advance({.evaluations_since_best = 1});
  EXPECT_EQ(run.phase(), Phase::kRunning);
  run.Advance({.evaluations_since_best = 2});
  EXPECT_EQ(run.phase(), Phase::kDraining);
  config.evaluator.early_stopping_patience = 0;
  RunLifecycle patient(&config, 0);
  patient.Advance({.evaluations_since_best = 1000});
  EXPECT_EQ(patient.phase(), Phase::kRunning);
}

TEST(RunLifecycleTest, DrainingRunNeedsNoActorsAndStoppedRunNoRoles) {
  const Config config = Budget(100);
  RunLifecycle run(&config, 0);
  EXPECT_TRUE(run.Needs(Role::kActor));
  RunLifecycle drained(&config, 100);
  drained.Advance({});
  EXPECT_FALSE(drained.Needs(Role::kActor));
  EXPECT_TRUE(drained.Needs(Role::kLearner));
  run.Stop();
  EXPECT_TRUE(run.stopping());
  EXPECT_TRUE(run.over());
  EXPECT_FALSE(run.running());
  EXPECT_FALSE(run.Needs(Role::kLearner));
  EXPECT_EQ(run.phase(), Phase::kRunning) << "a stop request leaves the phase";
}

TEST(RunLifecycleTest, GrantsStepsOnlyWhileRunning) {
  const Config config = Budget(100);
  RunLifecycle run(&config, 30);
  StepLease lease;
  HeartbeatReply reply;
  run.FillReply(50, &lease, &reply);
  EXPECT_EQ(reply.steps_granted, 50);
  EXPECT_FALSE(reply.steps_over);
  EXPECT_EQ(reply.steps_total_done, 30);
  run.FillReply(500, &lease, &reply);
  EXPECT_EQ(reply.steps_granted, 70);
  EXPECT_TRUE(reply.steps_over);
  run.leases().Return(&lease);
  run.Advance({.learner_finished = true});
  run.Stop();
  run.FillReply(500, &lease, &reply);
  EXPECT_EQ(reply.steps_granted, 0);
  EXPECT_TRUE(reply.steps_over);
  EXPECT_TRUE(reply.stop);
  EXPECT_EQ(reply.phase, Phase::kEvaluating);
}

TEST(RunLifecycleTest, SupervisedProgressIsTheLearnersAndNeverDecreases) {
  Config config = test::SupervisedRunConfig("bert");
  config.run.total_steps = 100;
  RunLifecycle run(&config, 10);
  StepLease lease;
  run.RecordSteps(Role::kActor, 60, &lease);
  EXPECT_EQ(run.steps_done(), 10);
  run.RecordSteps(Role::kLearner, 60, &lease);
  EXPECT_EQ(run.steps_done(), 60);
  run.RecordSteps(Role::kLearner, 40, &lease);  // restarted
  EXPECT_EQ(run.steps_done(), 60);
  run.RecordSteps(Role::kLearner, 1000, &lease);
  EXPECT_EQ(run.steps_done(), 100);
  run.Advance({});
  EXPECT_EQ(run.phase(), Phase::kDraining);
}

}  // namespace
}  // namespace troop
