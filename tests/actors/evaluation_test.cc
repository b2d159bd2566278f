#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "actors/evaluator_node.h"
#include "core/base/failpoint.h"
#include "core/base/philox.h"
#include "core/storage/memory_storage.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "replay/episodes/episode.h"
#include "tests/actors/recorded_episodes.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

ActingConfig CartPole() {
  ActingConfig config;
  config.env.id = "CartPole-v1";
  config.evaluator.envs = 4;
  return config;
}

std::vector<float> Weights(const ActingConfig& config) {
  const auto env = MakeEnvironment(config.env.id, EnvOptionsFor(config.env, config.serial));
  const auto module = MakeNetwork(config.model, (*env)->spec());
  std::vector<float> weights(std::size_t(ParameterCount(**module)));
  InitParameters(**module, 1, weights);
  return weights;
}

std::unique_ptr<EpisodeEvaluator> Played(const ActingConfig& config, std::int64_t episodes,
                                         std::uint64_t round, int steps_at_once) {
  auto made = EpisodeEvaluator::Make(config, {.episodes = episodes, .round = round, .version = 5},
                                     Weights(config));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  while ((*made)->Advance(steps_at_once) != EpisodeEvaluator::State::kOver) {
  }
  return std::move(*made);
}

TEST(EvaluationTest, PlaysAndReportsRequestedEpisodes) {
  const auto evaluation = Played(CartPole(), 10, 0, 64);
  const EvaluationReport report = evaluation->Report();
  EXPECT_EQ(report.episodes, 10);
  EXPECT_EQ(report.weights_version, 5u);
  ASSERT_EQ(evaluation->returns().size(), 10u);
  double sum = 0;
  for (const double r : evaluation->returns()) {
    sum += r;
    EXPECT_GE(r, report.return_min);
    EXPECT_LE(r, report.return_max);
  }
  EXPECT_DOUBLE_EQ(report.return_mean, sum / 10);
  EXPECT_DOUBLE_EQ(report.length_mean, sum / 10);  // CartPole: a reward of 1 a step
}

TEST(EvaluationTest, DoesNotDependOnSliceSize) {
  const auto small = Played(CartPole(), 7, 3, 1), large = Played(CartPole(), 7, 3, 1000);
  EXPECT_TRUE(std::ranges::equal(small->returns(), large->returns()));
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

// The mean became NaN.
TEST(EvaluationTest, ReplacesEpisodeWithNonFiniteReward) {
  const auto good = Played(CartPole(), 8, 0, 64);
  for (int n = 1; n <= 12; ++n) {  // the last step of an episode among them
    const Armed armed("evaluator.reward:" + std::to_string(n));
    const auto evaluation = Played(CartPole(), 8, 0, 64);
    EXPECT_TRUE(evaluation->error().ok());
    EXPECT_EQ(evaluation->nonfinite_values(), 1);
    EXPECT_EQ(evaluation->Report().episodes, 8);
    EXPECT_TRUE(std::isfinite(evaluation->Report().return_mean));
    EXPECT_FALSE(std::ranges::equal(evaluation->returns(), good->returns()));
  }
}

TEST(EvaluationTest, FailsWithOriginWhenRewardsAreAlwaysNonFinite) {
  const Armed armed("evaluator.reward:3+:inf");
  ActingConfig config = CartPole();
  const auto evaluation = Played(config, 1000000, 7, 64);
  EXPECT_EQ(evaluation->nonfinite_values(), 100);
  const std::uint64_t seed = DeriveSeed({.run_seed = std::uint64_t(config.seed),
                                         .purpose = Purpose::kEvaluation,
                                         .index = 0,
                                         .episode = 7u << 20 | 99u});
  EXPECT_NE(
      evaluation->error().message().find(fmt::format(
          "CartPole-v1: reward is inf at step 1 of episode 99 of environment 0 (seed {},", seed)),
      std::string::npos)
      << evaluation->error().message();
}

TEST(EvaluationTest, RoundsPlayDifferentEpisodes) {
  const auto a = Played(CartPole(), 8, 0, 64), b = Played(CartPole(), 8, 1, 64);
  EXPECT_FALSE(std::ranges::equal(a->returns(), b->returns()));
}

// An environment plays the same episodes alone as next to others: only its index matters.
TEST(EvaluationTest, EachEnvironmentPlaysFixedShareOfEpisodes) {
  ActingConfig config = CartPole();
  config.evaluator.epsilon = 1;                             // episodes of very different lengths
  for (config.seed = 0; config.seed < 10; ++config.seed) {  // either may have the shorter ones
    config.evaluator.envs = 2;
    const auto two = Played(config, 6, 0, 64);
    config.evaluator.envs = 1;
    const auto one = Played(config, 3, 0, 64);  // environment 0's share of the six
    std::multiset<double> all(two->returns().begin(), two->returns().end());
    for (const double r : one->returns()) {
      const auto found = all.find(r);
      ASSERT_NE(found, all.end()) << r;
      all.erase(found);
    }
  }
}

TEST(EvaluationTest, PlaysFewerEpisodesThanEnvironments) {
  EXPECT_EQ(Played(CartPole(), 2, 0, 64)->Report().episodes, 2);
}

TEST(EvaluationTest, RejectsZeroEpisodes) {
  EXPECT_EQ(
      EpisodeEvaluator::Make(CartPole(), {.episodes = 0}, Weights(CartPole())).status().code(),
      Code::kInvalidArgument);
}

// Regression: an episode that the policy never ends, in an environment without a limit, ran
// forever.
TEST(EvaluationTest, EndsEpisodesWithoutTerminationAtStepLimit) {
  ActingConfig config = CartPole();
  config.env.id = "MountainCar-v0";  // untrained weights don't reach the top
  config.env.max_episode_steps = 0;
  config.evaluator.max_episode_steps = 50;
  const auto made = EpisodeEvaluator::Make(config, {.episodes = 6}, Weights(config));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ((*made)->Advance(100), EpisodeEvaluator::State::kOver);  // 6 episodes on 4 environments
  EXPECT_EQ((*made)->Report().episodes, 6);
  EXPECT_EQ((*made)->Report().length_mean, 50);
}

TEST(EvaluationTest, EnvironmentStepLimitTakesPrecedence) {
  ActingConfig config = CartPole();
  config.evaluator.max_episode_steps = 1;
  EXPECT_GT(Played(config, 4, 0, 64)->Report().length_mean, 1);
}

// It was played to its end first, however long that took.
TEST(EvaluatorNodeTest, FinalEvaluationReplacesRunningOne) {
  ActingConfig config = CartPole();
  config.evaluator.every_s = 0;
  config.evaluator.episodes = 1000000;
  config.evaluator.final_episodes = 3;
  const std::vector<float> weights = Weights(config);
  const auto hub = MakeSimHub();
  const auto network = hub->MakeNetwork(), servers = hub->MakeNetwork();
  CoordinatorFake coordinator(hub.get());
  const auto server = MakeWeightsServer({.parameters = std::int64_t(weights.size())});
  const auto listener = *servers->Listen("inproc://weights", server.get());
  coordinator.AddPeer(Role::kParamServer, "inproc://weights", 2);
  const auto publisher = MakeWeightPublisher(*network->Connect(
      "inproc://weights", {.origin = {.role = Role::kLearner, .incarnation = 1}}));
  publisher->Publish({7, Buffer::Copy(std::as_bytes(std::span<const float>(weights)))});
  const auto member = coordinator.Member(network.get(), Role::kEvaluator, 3);
  const auto connect = [&](const EnvSpec&) -> Result<std::unique_ptr<WeightSubscriber>> {
    const std::string endpoint = member->Endpoint(Role::kParamServer, 0);
    if (endpoint.empty()) return std::unique_ptr<WeightSubscriber>();
    TROOP_ASSIGN_OR_RETURN(
        auto channel,
        network->Connect(endpoint, {.origin = {.role = Role::kEvaluator, .incarnation = 3}}));
    return MakeWeightSubscriber(std::move(channel));
  };
  const auto node = *EvaluatorNode::Make(
      config, {.network = network.get(), .member = member.get(), .connect_weights = connect});
  std::vector<EvaluationReport> reports;
  coordinator.on_beat = [&reports](const HeartbeatRequest& told, HeartbeatReply*) {
    reports.insert(reports.end(), told.evaluations.begin(), told.evaluations.end());
  };
  Time now{Seconds(1)};
  int busy = 0;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      now += Milliseconds(10);
      network->Pump(now);
      coordinator.Pump(now);
      servers->Pump(now);
      publisher->Poll(now);
      busy += node->Step(now).what == StepStatus::kBusy;
    }
  };
  rounds(100);
  EXPECT_GT(busy, 10);  // it plays
  EXPECT_TRUE(reports.empty());
  coordinator.reply.phase = Phase::kEvaluating;
  rounds(500);
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports.front().final);
  EXPECT_EQ(reports.front().episodes, 3);
}

// Frame by frame against the environment itself: with the greedy action of the same policy its
// state follows from the seed, so the first picture is that of a reset with the episode's seed.
TEST(EvaluationTest, RecordsPicturesOfFirstEpisode) {
  ActingConfig config = CartPole();
  config.evaluator.video_episodes = 2;
  const std::vector<float> weights = Weights(config);
  auto evaluation = EpisodeEvaluator::Make(
      config, {.episodes = 20, .round = 5, .version = 1, .video = true}, weights);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status().ToString();
  while ((*evaluation)->Advance(64) != Evaluator::State::kOver) {
  }
  const std::vector<Picture> frames = (*evaluation)->TakeFrames();
  EXPECT_TRUE((*evaluation)->TakeFrames().empty());
  const auto env = *MakeEnvironment("CartPole-v1", {});
  std::vector<std::byte> observation(env->spec().observation.bytes());
  env->Reset(DeriveSeed({.run_seed = std::uint64_t(config.seed),
                         .purpose = Purpose::kEvaluation,
                         .index = 0,
                         .episode = 5u << 20}),
             observation);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames[0].rgb, env->Render().rgb);
  // One picture per step of two episodes, and no more.
  const std::int64_t steps = std::int64_t(frames.size());
  EXPECT_GE(steps, 2 * (*evaluation)->Report().return_min);
  EXPECT_LE(steps, 2 * (*evaluation)->Report().return_max);
  EXPECT_TRUE(Played(config, 2, 5, 64)->TakeFrames().empty());
}

// ---- Recorded evaluations ----

Result<std::unique_ptr<EpisodeEvaluator>> Recording(const ActingConfig& config, Storage* storage,
                                                    std::int64_t episodes) {
  return EpisodeEvaluator::Make(
      config,
      {.episodes = episodes,
       .round = 9,
       .version = 5,
       .record =
           EpisodeEvaluator::Options::Record{
               .writer = {.storage = storage, .folder = "", .name = "evaluation"},
               .agent_steps = 1234}},
      Weights(config));
}

// Also where environments play on after their share, and episodes with bad rewards are replaced.
TEST(EvaluationTest, RecordsEpisodesThatCount) {
  for (const char* id : {"CartPole-v1", "Pendulum-v1"}) {
    for (const bool bad : {false, true}) {
      ActingConfig config = CartPole();
      config.env.id = id;
      config.env.max_episode_steps = 60;
      config.env.reward_scale = 0.5;
      config.evaluator.epsilon = 0.25;
      if (config.env.id == "Pendulum-v1") config.model.algorithm = AlgorithmKind::kDpg;
      MemoryStorage storage;
      const std::optional<Armed> armed =
          bad ? std::optional<Armed>(std::in_place, "evaluator.reward:20") : std::nullopt;
      const auto made = Recording(config, &storage, 10);
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      while ((*made)->Advance(64) != Evaluator::State::kOver) {
      }
      ASSERT_TRUE((*made)->error().ok()) << (*made)->error().ToString();
      EXPECT_EQ((*made)->nonfinite_values(), bad ? 1 : 0);
      const std::vector<Episode> episodes = EpisodesIn(&storage, "");
      ASSERT_EQ(episodes.size(), 10u) << id;
      EXPECT_EQ((*made)->recorded().episodes(), 10);
      std::vector<double> returns((*made)->returns().begin(), (*made)->returns().end()), found;
      std::set<std::uint64_t> seeds;
      for (const Episode& e : episodes) {
        ExpectReplays(config.env, e);
        double sum = 0;
        for (const float reward : e.rewards.as<float>()) sum += double(reward);
        found.push_back(sum);
        seeds.insert(e.seed.value());
        EXPECT_EQ(e.env, id);
        EXPECT_EQ(e.policy_updates, 5u);
        EXPECT_EQ(e.agent_steps, 1234);
        EXPECT_EQ(e.exploration, 0.25);
        EXPECT_EQ(e.reward_scale, 0.5);
      }
      EXPECT_EQ(seeds.size(), 10u);
      EXPECT_EQ(found, returns) << id;
    }
  }
}

TEST(EvaluationTest, FailedRecordingEndsEvaluation) {
  MemoryStorage storage;
  const auto made = Recording(CartPole(), &storage, 50);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  while ((*made)->returns().size() < 10) (*made)->Advance(1);
  const std::size_t before = EpisodesIn(&storage, "").size();
  EXPECT_GE(before, 10u);
  storage.FailFrom(storage.changes(), ResourceExhausted("the disk is full"));
  while ((*made)->Advance(64) != Evaluator::State::kOver) {
  }
  EXPECT_EQ((*made)->error().code(), Code::kResourceExhausted);
  EXPECT_EQ((*made)->error().message(), "the disk is full");
  EXPECT_LT((*made)->returns().size(), 50u);
  storage.Repair();
  EXPECT_EQ(EpisodesIn(&storage, "", true).size(), before);
}

}  // namespace
}  // namespace troop
