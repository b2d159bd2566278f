#include "actors/actor_node.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/base/failpoint.h"
#include "core/base/philox.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "replay/service/options_from_config.h"
#include "replay/service/server.h"
#include "tests/actors/actor_world.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

TEST(ActorNodeTest, TakesNoStepWithoutWeightsOrLease) {
  ActorWorld world(Catch());
  world.GrantUpTo(1000);
  ASSERT_TRUE(world.Rounds(500));
  EXPECT_EQ(world.Metric("replay/inserts"), 0);  // granted, but no weights were published
  EXPECT_GT(world.coordinator().told.steps_wanted, 0);

  ActorWorld unleased(Catch());
  unleased.PublishWeights(1);
  ASSERT_TRUE(unleased.Rounds(500));
  EXPECT_EQ(unleased.Metric("replay/inserts"), 0);
}

TEST(ActorNodeTest, SpendsLeasesExactlyForAnyEnvironmentCount) {
  for (const std::int64_t total : {400, 401, 403, 1}) {
    ActorWorld world(Catch());
    world.PublishWeights(1);
    world.GrantUpTo(total);
    ASSERT_TRUE(world.Rounds(3000));
    EXPECT_EQ(world.coordinator().told.steps_done, total);
    EXPECT_TRUE(world.coordinator().told.finished);
    EXPECT_EQ(world.coordinator().told.metrics.at("actor/steps").value, double(total));
  }
}

// CartPole's reward is 1, and each episode is cut after 5 steps, before a pole can fall: the
// discounted returns follow from the number of steps alone.
TEST(ActorNodeTest, ReportsStatisticsOfDiscountedReturns) {
  for (const bool normalize : {false, true}) {
    ActingConfig config = Catch();
    config.env.id = "CartPole-v1";
    config.env.max_episode_steps = 5;
    config.env.normalize_rewards = normalize;
    config.gamma = 0.9;
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(400);
    ASSERT_TRUE(world.Rounds(3000));
    ASSERT_EQ(world.coordinator().told.steps_done, 400);
    const RewardStatistics& told = world.coordinator().told.rewards;
    if (!normalize) {
      EXPECT_EQ(told, RewardStatistics{});
      continue;
    }
    std::vector<double> returns;
    for (int step = 0; step < 100; ++step) {
      const double before = step % 5 == 0 ? 0 : returns.back();
      returns.push_back(1 + 0.9 * before);
    }
    double mean = 0, squares = 0;
    for (const double g : returns) mean += g / 100;
    for (const double g : returns) squares += 4 * (g - mean) * (g - mean);  // of 4 environments
    EXPECT_EQ(told.count, 400);
    EXPECT_NEAR(told.mean, mean, 1e-9);
    EXPECT_NEAR(told.squares, squares, 1e-6);
  }
}

// The positions of the walk's metrics are the first elements of its observations: here only their
// range is known, and the number of steps. A number without values in an interval has no metric.
TEST(ActorNodeTest, ReportsMetricsOfEnvironment) {
  for (const std::string fault : {"", "metric_nan"}) {
    ActingConfig config = Catch();
    config.env.id = "Walk-v0";
    config.env.plugin = TROOP_PLUGIN_FOLDER "/walk.so";
    config.env.isolation = Isolation::kNone;
    config.env.metrics = true;
    config.metrics_every_s = 0.3;
    if (!fault.empty()) config.env.options = {{"fault", fault}};
    const CapturedLog log;
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(4000);
    ASSERT_TRUE(world.Rounds(3000));
    const MetricSnapshot& told = world.coordinator().told.metrics;
    ASSERT_TRUE(world.Rounds(1000));
    ASSERT_EQ(world.coordinator().told.steps_done, 4000);
    // All steps are done, and the last intervals had none.
    EXPECT_FALSE(told.contains("env.position.mean"));
    const std::string text = log.text();
    EXPECT_EQ(text.find("Walk-v0: metric odd is nan, must be finite") != std::string::npos,
              !fault.empty());
    EXPECT_EQ(text.find("metric odd", text.find("metric odd") + 1), std::string::npos);
  }
}

TEST(ActorNodeTest, MetricsOfIntervalFollowEnvironment) {
  ActingConfig config = Catch();
  config.env.id = "Walk-v0";
  config.env.plugin = TROOP_PLUGIN_FOLDER "/walk.so";
  config.env.isolation = Isolation::kNone;
  config.env.metrics = true;
  config.metrics_every_s = 0.3;
  ActorWorld world(config);
  world.PublishWeights(1);
  double counted = 0;
  world.coordinator().on_beat = [&](const HeartbeatRequest& told, HeartbeatReply* reply) {
    reply->steps_granted = told.steps_wanted;
    const auto mean = told.metrics.find("env.position.mean");
    if (mean == told.metrics.end()) return;
    EXPECT_EQ(mean->second.kind, MetricKind::kGaugeRatio);
    const double min = told.metrics.at("env.position.min").value;
    const double max = told.metrics.at("env.position.max").value;
    EXPECT_GE(min, 0);
    EXPECT_LE(max, 12);
    EXPECT_LT(min, mean->second.value);
    EXPECT_GT(max, mean->second.value);
    counted = std::max(counted, mean->second.count);
    EXPECT_EQ(std::fmod(mean->second.count, 4), 0);  // 4 environments
  };
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_GT(counted, 400);
}

// Experience depends on the exploration keys and the weights, not on where inference runs.
TEST(ActorNodeTest, InferenceServerGivesSameExperience) {
  ActingConfig served = Catch();
  served.actor.inference = InferencePlace::kServer;
  std::vector<std::map<std::string, double>> seen;
  for (const ActingConfig& config : {Catch(), served}) {
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(361);
    ASSERT_TRUE(world.Rounds(3000));
    EXPECT_EQ(world.coordinator().told.steps_done, 361);
    EXPECT_TRUE(world.coordinator().told.finished);
    seen.emplace_back();
    for (const char* name :
         {"actor/episodes", "actor/episode_return_sum", "actor/steps", "actor/weights_version"}) {
      seen.back()[name] = world.Told(name);
    }
    for (const char* name : {"replay/inserts", "replay/items"}) {
      seen.back()[name] = world.Metric(name);
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[1]["actor/weights_version"], 1);
  EXPECT_NE(seen[1]["actor/episode_return_sum"], 0);
}

// An item's initial priority comes from the q-values that the actor computed. The test recomputes
// it from the observations that the replay returns. Older frames of the stack matter: the weights
// are random.
void DrawnStacksAreWhatThePolicySaw(ActingConfig config) {
  config.env.frame_stack = config.model.frame_stack = 4;
  config.actor.n_step = 1;
  config.replay.min_items = 200;
  config.replay.alpha = 1;  // the probability of an item is its share of the priorities
  config.replay.priority_epsilon = 0;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(400);
  ASSERT_TRUE(world.Rounds(3000));
  ASSERT_EQ(world.coordinator().told.steps_done, 400);
  const auto batches = world.Draw();
  double probabilities = 0, priorities = 0;
  std::vector<std::pair<double, double>> items;
  for (const SampleBatch& batch : batches) {
    const Tensor q = world.Forward(batch.observation);
    const Tensor next = world.Forward(batch.next_observation);
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const auto row = next.Rows(i, 1).as<float>();
      const double bootstrap = double(batch.discount.as<float>()[std::size_t(i)]) * config.gamma *
                               double(*std::ranges::max_element(row));
      const auto action = batch.action.as<std::int32_t>()[std::size_t(i)];
      const double taken = q.Rows(i, 1).as<float>()[std::size_t(action)];
      const double reward = batch.reward.as<float>()[std::size_t(i)];
      items.emplace_back(batch.probability[std::size_t(i)], std::abs(reward + bootstrap - taken));
      probabilities += items.back().first;
      priorities += items.back().second;
    }
  }
  ASSERT_GT(items.size(), 500u);
  for (const auto& [probability, priority] : items) {
    EXPECT_NEAR(probability * priorities / probabilities, priority, 1e-4);
  }
}

TEST(ActorNodeTest, SampledStackEqualsStackActedOn) {
  DrawnStacksAreWhatThePolicySaw(Catch());  // in one row
  ActingConfig pictures = Catch();
  LayerConfig conv;
  conv.type = LayerType::kConv2d;
  conv.filters = 8;
  conv.kernel = 3;
  pictures.model.network.layers = {conv};
  DrawnStacksAreWhatThePolicySaw(pictures);
}

// Regression: an actor requested at most two leases ahead and waited permanently when they did not
// cover its environments.
TEST(ActorNodeTest, CompletesWithLeasesSmallerThanEnvironmentCount) {
  ActingConfig config = Catch();
  config.actor.envs = 9;
  config.actor.lease_steps = 2;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(100);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_EQ(world.coordinator().told.steps_done, 100);
  EXPECT_TRUE(world.coordinator().told.finished);
}

// Catch's episodes have 9 steps and begin at once: 4 environments, 90 steps each, 10 episodes.
TEST(ActorNodeTest, EveryStepBecomesItemOnceEpisodesEnd) {
  ActorWorld world(Catch());
  world.PublishWeights(1);
  world.GrantUpTo(360);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_EQ(world.Metric("replay/inserts"), 360);
  EXPECT_EQ(world.coordinator().told.metrics.at("actor/episodes").value, 40);
}

TEST(ActorNodeTest, ContinuesWhenLeasesReturnAfterBudgetSeemedSpent) {
  ActorWorld world(Catch());
  world.PublishWeights(1);
  world.GrantUpTo(101);
  ASSERT_TRUE(world.Rounds(2000));
  ASSERT_TRUE(world.coordinator().told.finished);
  world.GrantUpTo(150);  // another actor died, its steps returned
  world.coordinator().reply.steps_over = false;
  ASSERT_TRUE(world.Rounds(2000));
  EXPECT_EQ(world.coordinator().told.steps_done, 150);
  EXPECT_TRUE(world.coordinator().told.finished);
}

TEST(ActorNodeTest, CountsStepsOnlyAfterReplayAcknowledges) {
  ActorWorld world(Catch());
  world.PublishWeights(1);
  world.GrantUpTo(2000);
  ASSERT_TRUE(world.Rounds(20));
  world.coordinator().on_beat = [&](const HeartbeatRequest& told, HeartbeatReply* reply) {
    reply->steps_granted =
        std::max(reply->steps_granted, std::min<std::int64_t>(told.steps_wanted, 2000));
    // Items: a step's item follows up to n = 3 steps later, so inserts trail the reported steps.
    EXPECT_LE(told.steps_done, std::int64_t(world.Metric("replay/inserts")) + 4 * 3);
  };
  ASSERT_TRUE(world.Rounds(2000));
  EXPECT_GT(world.coordinator().told.steps_done, 1000);
}

TEST(ActorNodeTest, DoesNotCountStepWithParkedInsert) {
  ActingConfig config = Catch();
  config.replay.min_items = 20;
  ActorWorld world(config, 3, 8);  // no sampler: pushes wait
  world.PublishWeights(1);
  world.GrantUpTo(2000);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_GT(world.coordinator().told.metrics.at("actor/inflight_inserts").value, 0);
  EXPECT_GT(world.coordinator().told.steps_done, 0);
  EXPECT_LE(world.coordinator().told.steps_done,
            std::int64_t(world.Metric("replay/inserts")) + 4 * 3);
}

// The channel's own window ended it at 16.
TEST(ActorNodeTest, KeepsFullWindowOfPushesInFlight) {
  ActingConfig config = Catch();
  config.actor.insert_batch_size = 1;
  config.actor.max_inflight_inserts = 40;
  config.replay.min_items = 20;
  ActorWorld world(config, 3, 8);  // no sampler: pushes wait
  world.PublishWeights(1);
  world.GrantUpTo(2000);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_EQ(world.coordinator().told.metrics.at("actor/inflight_inserts").value, 40);
}

TEST(ActorNodeTest, EndsOnDrainOrStop) {
  for (const int way : {0, 1, 2}) {
    ActorWorld world(Catch());
    world.PublishWeights(1);
    world.GrantUpTo(100000);
    ASSERT_TRUE(world.Rounds(50));
    if (way == 0) world.coordinator().reply.phase = Phase::kDraining;
    if (way == 1) world.coordinator().reply.stop = true;
    if (way == 2) world.node().Drain();
    EXPECT_FALSE(world.Rounds(2000));
    EXPECT_TRUE(world.node().result().ok());
  }
}

// An empty parameter server answers at once: the pull that follows must wait its time.
TEST(ActorNodeTest, WaitsBetweenPullsFromEmptyParameterServer) {
  ActorWorld world(Catch());
  world.GrantUpTo(100);
  ASSERT_TRUE(world.Rounds(10));
  int turns = 0;
  for (int i = 0; i < 100; ++i) {
    turns += world.node().Step(Time(Seconds(2))).what == StepStatus::kBusy;
  }
  EXPECT_EQ(turns, 0);
}

TEST(ActorNodeTest, ActsWithNewWeightsEveryFewSteps) {
  ActingConfig config = Catch();
  config.actor.weight_sync_steps = 50;
  ActorWorld world(config);
  world.GrantUpTo(1000000);
  for (const std::uint64_t version : {1, 2, 3}) {
    world.PublishWeights(version);
    ASSERT_TRUE(world.Rounds(600));
    EXPECT_EQ(world.coordinator().told.metrics["actor/weights_version"].value, double(version));
  }
}

TEST(ActorNodeTest, ActsRandomlyDuringWarmup) {
  for (const bool warm : {false, true}) {
    ActingConfig config = Catch();
    config.actor.epsilon_base = 0;
    config.actor.warmup_steps = 1000;
    config.replay.min_items = 100;
    ActorWorld world(config);
    world.coordinator().reply.steps_total_done = warm ? 1000 : 999;
    ASSERT_TRUE(world.Rounds(20));
    world.PublishZeros();
    world.GrantUpTo(900);
    ASSERT_TRUE(world.Rounds(500));
    const std::set<std::int32_t> all{0, 1, 2}, first{0};
    EXPECT_EQ(world.Actions(), warm ? first : all);
  }
}

// Horgan et al. 2018: ε_i = base^(1 + alpha·i/(N-1)), over the environments of all current actors.
TEST(ActorNodeTest, RecomputesEpsilonsWhenActorCountChanges) {
  ActingConfig config = Catch();
  config.actors = 2;
  config.actor.envs = 4;
  ActorWorld world(config);
  const auto expect_part = [&](int place, int places) {
    for (int i = 0; i < 4; ++i) {
      const double rung = double(place * 4 + i) / (places * 4 - 1);
      EXPECT_NEAR(world.node().epsilon(std::size_t(i)), std::pow(0.4, 1 + 7 * rung), 1e-12);
    }
  };
  expect_part(0, 2);
  for (const auto& [place, places] : {std::pair(0, 5), {3, 5}, {1, 2}, {7, 100}}) {
    world.coordinator().reply.place = place;
    world.coordinator().reply.places = places;
    ASSERT_TRUE(world.Rounds(600));  // more than two beats
    expect_part(place, places);
  }
}

// A fresh incarnation, as after a restart: what it does depends on the run's steps alone.
TEST(ActorNodeTest, AnnealsByStepsOfRun) {
  const auto share_of_random = [](std::int64_t steps_done) {
    ActingConfig config = Catch();
    config.actor.epsilon_steps = 4000;
    config.actor.epsilon_initial = 0.9;
    config.actor.epsilon_final = 0;
    config.replay.alpha = 0;
    config.replay.min_items = 1000;
    ActorWorld world(config);
    world.coordinator().reply.steps_total_done = steps_done;
    EXPECT_TRUE(world.Rounds(20));
    world.PublishZeros();
    world.GrantUpTo(3000);
    EXPECT_TRUE(world.Rounds(1000));
    double other = 0, count = 0;  // two of three random actions are not the greedy one
    for (const SampleBatch& batch : world.Draw()) {
      for (const std::int32_t action : batch.action.as<std::int32_t>()) {
        other += action != 0;
        ++count;
      }
    }
    return other / count * 3 / 2;
  };
  // 20 batches of 64 from 3000 items: a standard deviation of 0.02, more with uneven priorities.
  EXPECT_NEAR(share_of_random(0), 0.9, 0.2);
  EXPECT_NEAR(share_of_random(2000), 0.45, 0.2);
  EXPECT_EQ(share_of_random(4000), 0);
}

TEST(ActorNodeTest, RestartedActorPlaysOtherEpisodes) {
  const auto returns_of = [](std::uint64_t incarnation) {
    ActingConfig config = Catch();
    config.actor.epsilon_base = 0;  // what it does is the same: the episodes differ
    config.actor.warmup_steps = 0;
    ActorWorld world(config, incarnation);
    world.PublishZeros();
    world.GrantUpTo(4000);
    EXPECT_TRUE(world.Rounds(2000));
    EXPECT_EQ(world.coordinator().told.steps_done, 4000);
    return world.coordinator().told.metrics.at("actor/episode_return_sum").value;
  };
  EXPECT_EQ(returns_of(3), returns_of(3));
  EXPECT_NE(returns_of(3), returns_of(4));
}

// ---- Bad numbers.

// Arms a failpoint for one test, and keeps what is logged meanwhile.
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
  std::string Log() const { return log_.text(); }

 private:
  const CapturedLog log_;
};

ActingConfig CartPole() {
  ActingConfig config = Catch();
  config.env.id = "CartPole-v1";
  return config;
}

std::uint64_t SeedOf(const ActingConfig& config, std::uint64_t incarnation, std::uint64_t episode) {
  return DeriveSeed({.run_seed = std::uint64_t(config.seed),
                     .purpose = Purpose::kEnvironment,
                     .index = 0,
                     .episode = incarnation << 32 | episode});
}

// Catch ends each episode at its 9th step.
TEST(ActorNodeTest, DropsNonFiniteRewardAndReportsOrigin) {
  for (const int n : {1, 5, 9, 14}) {
    const Armed armed("actor.reward:" + std::to_string(n));
    ActorWorld world(Catch());
    world.PublishWeights(1);
    world.GrantUpTo(360);
    ASSERT_TRUE(world.Rounds(3000));
    EXPECT_EQ(world.Told("actor/nonfinite_values"), 1);
    EXPECT_EQ(world.coordinator().told.steps_done, 360);  // another step was taken in its place
    EXPECT_TRUE(std::isfinite(world.Told("actor/episode_return_sum")));
    // The steps before it are items as those before any end; only the last ones of all wait.
    EXPECT_GE(world.Metric("replay/inserts"), 360 - 4 * 3);
    const std::string log = armed.Log();
    const std::uint64_t episode = std::uint64_t(n - 1) / 9;
    const std::string origin =
        fmt::format("Catch-v0: reward is nan at step {} of episode {} of environment 0 (seed {},",
                    (n - 1) % 9 + 1, episode, SeedOf(Catch(), 3, episode));
    EXPECT_NE(log.find(origin), log.npos) << log;
  }
}

// A learner that leaves its item out has neither its environment nor its seed.
TEST(ActorNodeTest, ReportsOriginOfSuspiciousFiniteValues) {
  const CapturedLog log;
  ActingConfig config = Catch();
  config.env.reward_scale = 1e12;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(180);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_EQ(world.Told("actor/suspect_values"), 20) << "of as many episodes";
  EXPECT_EQ(world.Told("actor/nonfinite_values"), 0);
  const std::string origin =
      fmt::format("at step 9 of episode 0 of environment 0 (seed {},", SeedOf(config, 3, 0));
  EXPECT_NE(log.text().find("Catch-v0: reward is "), std::string::npos) << log.text();
  EXPECT_NE(log.text().find(origin), std::string::npos) << log.text();
}

TEST(ActorNodeTest, DropsNonFiniteObservationAndAbandonsEpisode) {
  const Armed armed("actor.observation:4:inf");
  ActingConfig config = CartPole();
  config.replay.min_items = 100;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(400);
  ASSERT_TRUE(world.Rounds(3000));
  EXPECT_EQ(world.Told("actor/nonfinite_values"), 1);
  EXPECT_EQ(world.coordinator().told.steps_done, 400);
  const std::string origin = fmt::format(
      "CartPole-v1: observation[0] is inf at step 4 of episode 0 of environment 0 (seed {},",
      SeedOf(config, 3, 0));
  EXPECT_NE(armed.Log().find(origin), std::string::npos) << armed.Log();
  EXPECT_TRUE(world.ObservationsAreFinite());
}

TEST(ActorNodeTest, FailsWithOriginWhenValuesAreAlwaysNonFinite) {
  for (const char* order : {"actor.reward:20+", "actor.observation:20+"}) {
    const Armed armed(order);
    ActorWorld world(CartPole());
    world.PublishWeights(1);
    world.GrantUpTo(100000);
    EXPECT_FALSE(world.Rounds(20000));
    const std::string why = world.node().result().ToString();
    for (const char* part : {"CartPole-v1", "is nan at step 1 of episode", "environment 0 (seed ",
                             "100 faults or non-finite values", "fix the environment"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
    // Logged at 1, 2, 4 … 64: a line for each would fill the disk. One more line: its first push
    // arrived.
    EXPECT_EQ(std::ranges::count(armed.Log(), '\n'), 8) << armed.Log();
  }
}

TEST(ActorNodeTest, CompleteEpisodesResetNonFiniteCount) {
  ActingConfig config = Catch();
  config.actor.envs = 1;
  ActorWorld world(config);
  world.PublishWeights(1);
  std::int64_t granted = 0;
  for (int i = 0; i < 150; ++i) {
    const Armed armed("actor.reward:1");
    world.GrantUpTo(granted += 20);
    ASSERT_TRUE(world.Rounds(600)) << i << world.node().result().ToString();
    ASSERT_EQ(world.Told("actor/nonfinite_values"), i + 1);
  }
}

TEST(ActorNodeTest, IgnoresNonFiniteWeights) {
  ActingConfig config = Catch();
  config.actor.weight_sync_steps = 10;
  ActorWorld world(config);
  world.GrantUpTo(100000);
  world.PublishWeights(1);
  ASSERT_TRUE(world.Rounds(200));
  world.PublishFilled(2, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(world.Rounds(2000));
  EXPECT_EQ(world.Told("actor/nonfinite_weights"), 1);
  EXPECT_EQ(world.Told("actor/nonfinite_values"), 0);  // it went on with those before
  world.PublishFilled(3, 0);
  ASSERT_TRUE(world.Rounds(2000));
  EXPECT_EQ(world.Told("actor/nonfinite_weights"), 1);
}

// The replay refused the priority, and the actor died of it.
TEST(ActorNodeTest, NonFiniteQValuesNeverReachReplay) {
  ActingConfig config = Catch();
  config.actor.weight_sync_steps = 10;
  ActorWorld world(config);
  world.GrantUpTo(100000);
  world.PublishWeights(1);
  ASSERT_TRUE(world.Rounds(200));
  world.PublishFilled(2, 3e38f);  // finite, as an exploded network's; its q-values are not
  EXPECT_FALSE(world.Rounds(2000));
  const std::string why = world.node().result().ToString();
  EXPECT_NE(why.find("Catch-v0: q[0] is "), why.npos) << why;
  EXPECT_NE(why.find("weights of update 2"), why.npos) << why;
  EXPECT_EQ(why.find("refused"), why.npos) << why;
}

TEST(ActorNodeTest, ReportsUnknownEnvironment) {
  ActingConfig config = Catch();
  config.env.id = "Nothing-v0";
  const auto hub = MakeSimHub();
  const auto network = hub->MakeNetwork();
  CoordinatorFake coordinator(hub.get());
  const auto member = coordinator.Member(network.get(), Role::kActor, 1);
  EXPECT_EQ(
      ActorNode::Make(config, {.network = network.get(), .member = member.get()}).status().code(),
      Code::kNotFound);
}

}  // namespace
}  // namespace troop
