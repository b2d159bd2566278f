#include "fleet/run/throughput.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

RunView View(std::int64_t steps, double updates, double ready = 1) {
  RunView view{.steps = steps, .steps_total = 10000};
  view.updates = std::uint64_t(updates);
  view.metrics["learner/ready_batches"].value = ready;
  return view;
}

TEST(RateMeterTest, ComputesRatesOverWindow) {
  ThroughputMeter meter;
  RunThroughput rates;
  for (int i = 0; i <= 20; ++i) rates = meter.Update(Time(Seconds(i)), View(100 * i, 50 * i));
  EXPECT_NEAR(rates.steps_per_s, 100, 1e-9);
  EXPECT_NEAR(rates.updates_per_s, 50, 1e-9);
  EXPECT_NEAR(rates.elapsed_s, 20, 1e-9);
  EXPECT_NEAR(*rates.left_s, 80, 1e-9);
  for (int i = 21; i <= 40; ++i) rates = meter.Update(Time(Seconds(i)), View(2000, 1000));
  EXPECT_NEAR(rates.steps_per_s, 0, 1e-9);  // the window has moved on
  EXPECT_FALSE(rates.left_s.has_value());
}

// A restarted learner adopted the weights of the others, and the rate had five digits.
TEST(RateMeterTest, IgnoresReturnToCheckpoint) {
  ThroughputMeter meter;
  for (int i = 0; i <= 3; ++i) meter.Update(Time(Seconds(i)), View(0, 1000 + 100 * i));
  EXPECT_NEAR(meter.Update(Time(Seconds(4)), View(0, 900)).updates_per_s, 75, 1e-9);
  RunThroughput rates;
  for (int i = 5; i <= 20; ++i) rates = meter.Update(Time(Seconds(i)), View(0, 100 * i + 500));
  EXPECT_NEAR(rates.updates_per_s, 100, 1e-9);
}

// The updates of the earlier parts of a run were the first rate of a resumed one.
TEST(RateMeterTest, IgnoresInitialCounts) {
  ThroughputMeter meter;
  meter.Update(Time(Seconds(0)), View(0, 50000));
  EXPECT_NEAR(meter.Update(Time(Seconds(1)), View(0, 50010)).updates_per_s, 10, 1e-9);
}

TEST(RateMeterTest, AveragesRecentReturnsAndKeepsLast) {
  ThroughputMeter meter;
  RunView view = View(0, 1);
  const RunThroughput before = meter.Update(Time(Seconds(1)), view);
  EXPECT_FALSE(before.episode_return_mean.has_value());  // it was 0, which other runs truly have
  view.metrics["actor/episodes"].value = 4;
  view.metrics["actor/episode_return_sum"].value = 10;
  view.metrics["actor/episode_len_sum"].value = 20;
  EXPECT_EQ(meter.Update(Time(Seconds(2)), view).episode_return_mean, 2.5);
  EXPECT_EQ(meter.Update(Time(Seconds(2)), view).episode_len_mean, 5);
  for (int i = 3; i < 30; ++i) meter.Update(Time(Seconds(i)), view);
  EXPECT_EQ(meter.Update(Time(Seconds(30)), view).episode_return_mean, 2.5);
}

struct Bottleneck {
  double updates, inserts_blocked, samples_blocked, ready, actors_blocked;
  Phase phase;
  const char* said;
};

TEST(RateMeterTest, IdentifiesBottleneck) {
  for (const Bottleneck& b :
       std::vector<Bottleneck>{{0, 0, 0, 0, 0, Phase::kRunning, "none yet"},
                               {10, 0.9, 0.0, 3, 1, Phase::kRunning, "learner"},
                               {10, 0.0, 0.9, 0, 0, Phase::kRunning, "actors"},
                               {10, 0.0, 0.0, 0, 0, Phase::kRunning, "replay"},
                               {10, 0.9, 0.0, 0, 1, Phase::kRunning, "replay"},
                               {10, 0.0, 0.0, 3, 0, Phase::kRunning, "learner"},
                               {10, 0.9, 0.0, 3, 1, Phase::kDraining, "learner"},
                               {10, 0.9, 0.0, 3, 1, Phase::kEvaluating, "evaluator"},
                               {10, 0.9, 0.0, 3, 1, Phase::kDone, "none"}}) {
    ThroughputMeter meter;
    RunView view = View(10, b.updates, b.ready);
    view.phase = b.phase;
    meter.Update(Time(Seconds(1)), view);
    view.metrics["replay/insert_blocked_s"].value = b.inserts_blocked;
    view.metrics["replay/sample_blocked_s"].value = b.samples_blocked;
    view.metrics["actor/insert_blocked"].value = b.actors_blocked;
    EXPECT_TRUE(meter.Update(Time(Seconds(2)), view).bottleneck.starts_with(b.said)) << b.said;
  }
}

TEST(RateMeterTest, BlockedOrRestartingRoleIsBottleneckFirst) {
  ThroughputMeter meter;
  RunView view = View(10, 10, 3);  // else the learner
  meter.Update(Time(Seconds(1)), view);
  view.conditions = {{Role::kReplay, 0, RoleView::State::kBlocked, "the disk is full"},
                     {Role::kActor, 1, RoleView::State::kRestarting, "exit code 1"}};
  const RunThroughput rates = meter.Update(Time(Seconds(2)), view);
  const std::string said = "replay (replay-0 is blocked: the disk is full; and 1 more)";
  EXPECT_EQ(rates.bottleneck, said);
  EXPECT_NE(ProgressLine(view, rates).find(said), std::string::npos);
  EXPECT_NE(ProgressBlock("run", view, rates, 100).find(said), std::string::npos);
  view.supervised = true;
  EXPECT_NE(ProgressLine(view, rates).find(said), std::string::npos);
  EXPECT_NE(ProgressBlock("run", view, rates, 100).find(said), std::string::npos);
  view.conditions = {{Role::kActor, 1, RoleView::State::kRestarting, "exit code 1"}};
  EXPECT_EQ(meter.Update(Time(Seconds(3)), view).bottleneck,
            "actors (actor-1 is restarting: exit code 1)");
}

// One look at the queue decided, and a steady run's bottleneck changed with each of them.
TEST(RateMeterTest, SteadyRunKeepsBottleneck) {
  for (const auto& [full_of_eight, said] : {std::pair{5, "learner"}, std::pair{2, "replay"}}) {
    ThroughputMeter meter;
    for (int i = 0; i < 200; ++i) {
      const double ready = i % 8 < full_of_eight ? 2 : 0;
      const RunThroughput rates = meter.Update(Time(Milliseconds(250 * i)), View(i, 1 + i, ready));
      if (i < 20) continue;
      ASSERT_TRUE(rates.bottleneck.starts_with(said)) << i << ": " << rates.bottleneck;
    }
  }
}

// It showed the age of the replay's experience: 48,313 updates where the actors were up to date.
TEST(RateMeterTest, LagIsFromActorWeightsToLearnerWeights) {
  ThroughputMeter meter;
  RunView view = View(0, 1);
  EXPECT_FALSE(meter.Update(Time(Seconds(1)), view).weights_lag.has_value());
  view.metrics["learner/sample_age"].value = 48313;
  view.metrics["learner/version"].value = 95124;
  view.metrics["actor/weights_version"].value = 95024;
  EXPECT_EQ(meter.Update(Time(Seconds(2)), view).weights_lag, 100);
  view.metrics["actor/weights_version"].value = 97403;  // received after the learner's
  EXPECT_EQ(meter.Update(Time(Seconds(3)), view).weights_lag, 0);
}

// A learner and an actor that beat half a period apart, at 1000 updates/s.
TEST(RateMeterTest, LagCompensatesForReportTimes) {
  ThroughputMeter meter;
  std::optional<double> lag;
  for (int i = 0; i < 20; ++i) {
    RunView view = View(0, 1 + 250 * i);
    view.members = {{.role = Role::kLearner, .process = 1, .heartbeat_age_s = 0.2},
                    {.role = Role::kActor, .process = 2, .heartbeat_age_s = 0.075}};
    view.metrics["learner/version"].value = 10000 + 250 * i - 200;
    view.metrics["actor/weights_version"].value = 10000 + 250 * i - 75 - 40;
    lag = meter.Update(Time(Milliseconds(250 * i)), view).weights_lag;
  }
  ASSERT_TRUE(lag.has_value());
  EXPECT_NEAR(*lag, 40, 1e-6);
}

TEST(RateMeterTest, KeepsReplayFillAfterReplayLeft) {
  ThroughputMeter meter;
  RunView view = View(0, 1);
  view.metrics["replay/fill"].value = 0.5;
  meter.Update(Time(Seconds(1)), view);
  EXPECT_EQ(meter.Update(Time(Seconds(2)), View(0, 1)).replay_fill, 0.5);
}

TEST(ProgressTextTest, ShowsAllProgressItems) {
  ThroughputMeter meter;
  meter.Update(Time(Seconds(0)), View(0, 1));
  RunView view = View(2500, 1000);
  view.evaluations.push_back({.return_mean = 123.4});
  RunThroughput rates = meter.Update(Time(Seconds(10)), view);
  rates.samples_per_insert = 7.5;
  rates.replay_fill = 0.42;
  rates.weights_lag = 17;
  const std::string block = ProgressBlock("pole", view, rates, 79),
                    line = ProgressLine(view, rates);
  for (const char* part : {"2500", "10.0 k", "250/s", "1000", "7.50", "42 %", "lag 17", "123.4",
                           "30 s left", "bottleneck"}) {
    EXPECT_NE(block.find(part), std::string::npos) << part << "\n" << block;
  }
  for (const char* part : {"2500/10000", "250/s", "1000", "7.50", "42 %", "lag 17",
                           "evaluated 123.4", "left 30 s", "bottleneck"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << "\n" << line;
  }
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(ProgressTextTest, ShowsDashForUnknownNumbers) {
  ThroughputMeter meter;
  const RunView view = View(0, 0);
  const RunThroughput rates = meter.Update(Time(Seconds(0)), view);
  EXPECT_NE(ProgressBlock("pole", view, rates, 79).find("return        – training"),
            std::string::npos)
      << ProgressBlock("pole", view, rates, 79);
  const std::string line = ProgressLine(view, rates);
  EXPECT_NE(line.find("samples/insert –  "), std::string::npos) << line;
  EXPECT_NE(line.find("return –  "), std::string::npos) << line;
}

// Large data is read for minutes before the first update; a line of zeros alone says nothing.
TEST(ProgressTextTest, ShowsThatLearnersReadDataUntilFirstUpdate) {
  ThroughputMeter meter;
  RunView view{.supervised = true, .steps_total = 10000};
  RunThroughput rates = meter.Update(Time(Seconds(1)), view);
  for (const std::string& text :
       {ProgressBlock("imdb", view, rates, 100), ProgressLine(view, rates)}) {
    EXPECT_NE(text.find("bottleneck: none yet (learners are loading data)"), std::string::npos)
        << text;
  }
  view.updates = 1;
  rates = meter.Update(Time(Seconds(2)), view);
  EXPECT_EQ(ProgressLine(view, rates).find("bottleneck"), std::string::npos);
}

// Offline runs have samples and evaluations, but no replay, no training returns and no tokens.
TEST(ProgressTextTest, ShowsLossOfOfflineRun) {
  RunView view{.offline = true, .steps = 640, .steps_total = 10000, .updates = 10};
  view.metrics["learner/loss"].value = 0.1234;
  ThroughputMeter meter;
  const RunThroughput rates = meter.Update(Time(Seconds(1)), view);
  for (const std::string& text :
       {ProgressBlock("clone", view, rates, 100), ProgressLine(view, rates)}) {
    EXPECT_NE(text.find("samples"), std::string::npos) << text;
    EXPECT_NE(text.find("loss 0.1234"), std::string::npos) << text;
    for (const char* absent : {"replay", "return", "tokens", "accuracy", "bottleneck"}) {
      EXPECT_EQ(text.find(absent), std::string::npos) << absent << text;
    }
  }
}

// Supervised runs show neither replay nor returns, and omit learners that have left.
TEST(ProgressTextTest, ShowsAccuracyAndLossOfSupervisedRun) {
  const auto look = [](double reviews, double tokens) {
    RunView view{.supervised = true, .steps = std::int64_t(reviews), .steps_total = 10000};
    view.updates = 80;
    view.metrics["learner/tokens"].value = tokens;
    view.metrics["learner/loss"].value = 0.1234;
    view.metrics["learner/accuracy"].value = 0.875;
    return view;
  };
  ThroughputMeter meter;
  meter.Update(Time(Seconds(0)), look(0, 0));
  RunView view = look(2500, 500000);
  view.evaluations.push_back({.return_mean = 86.54});
  const RunThroughput rates = meter.Update(Time(Seconds(10)), view);
  for (const std::string& text :
       {ProgressBlock("imdb", view, rates, 100), ProgressLine(view, rates)}) {
    for (const char* part : {"examples", "2500", "250/s", "loss 0.1234", "accuracy 87.5 %",
                             "86.54 %", "50.0 k tokens/s"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    for (const char* part : {"replay", "return", "samples", "lag"}) {
      EXPECT_EQ(text.find(part), std::string::npos) << part << "\n" << text;
    }
  }
  view.metrics.erase("learner/loss");
  EXPECT_EQ(ProgressLine(view, rates).find("loss"), std::string::npos);
}

}  // namespace
}  // namespace troop
