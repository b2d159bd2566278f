#include "actors/actor_recorder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <vector>

#include "core/base/failpoint.h"
#include "core/storage/memory_storage.h"
#include "tests/actors/actor_world.h"
#include "tests/actors/recorded_episodes.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

struct Recorded {
  std::vector<Episode> episodes;
  double count, dropped, bytes, returns, steps;
};
Recorded Record(const ActingConfig& config, Storage* storage, std::int64_t steps) {
  ActorWorld world(config, 3, 0, storage);
  world.PublishWeights(5);
  world.GrantUpTo(steps);
  EXPECT_TRUE(world.Rounds(4000));
  EXPECT_EQ(world.coordinator().told.steps_done, steps);
  return {storage != nullptr ? EpisodesIn(storage, kEpisodeFolder) : std::vector<Episode>(),
          world.Told("actor/recorded_episodes"),
          world.Told("actor/unrecorded_episodes"),
          world.Told("actor/recorded_bytes"),
          world.Told("actor/episode_return_sum"),
          world.Told("actor/episodes")};
}

TEST(ActorRecorderTest, RecordedEpisodesReplayInTheirEnvironment) {
  for (const char* id : {"CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1"}) {
    ActingConfig config = Catch();
    config.env.id = id;
    config.env.frame_stack = 2;  // frames are recorded once
    config.actor.record_episodes = true;
    if (config.env.id == "Pendulum-v1") {
      config.env.frame_stack = 1;
      config.model.algorithm = AlgorithmKind::kDpg;
      config.env.max_episode_steps = 40;
    }
    config.model.frame_stack = config.env.frame_stack;
    config.env.reward_scale = 0.5;
    // Only fp32 observations are clipped; the bound is beyond all of them.
    const double clip = config.env.id.starts_with("MinAtar") ? 0 : 1e6;
    config.env.observation_clip = clip;
    MemoryStorage storage;
    const Recorded got = Record(config, &storage, 1200);
    ASSERT_GT(got.episodes.size(), 4u) << id;
    EXPECT_EQ(double(got.episodes.size()), got.count);
    double returns = 0;
    std::size_t bytes = 0;
    for (const Episode& e : got.episodes) {
      ExpectReplays(config.env, e);
      for (const float reward : e.rewards.as<float>()) returns += reward;
      EXPECT_EQ(e.env, id);
      EXPECT_EQ(e.reward_scale, 0.5);
      EXPECT_EQ(e.observation_clip, clip);
      EXPECT_EQ(e.policy_updates, 5u);
      EXPECT_EQ(e.truncated, config.env.id == "Pendulum-v1");
      EXPECT_GT(e.exploration, 0);
      bytes += EncodeEpisode(e).size();
    }
    EXPECT_EQ(double(bytes), got.bytes);
    // Whole episodes, those that the actor counts: at the end of its lease all may be cut.
    EXPECT_LE(got.count, got.steps);
    EXPECT_GE(got.count, got.steps - 4);
    if (got.count == got.steps) {
      EXPECT_NEAR(returns, got.returns, 1e-3 * std::abs(returns) + 1e-3);
    }
  }
}

TEST(ActorRecorderTest, DropsEpisodesWithBadRewards) {
  setenv("TROOP_FAILPOINT", "actor.reward:30", 1);
  ReloadFailpoint();
  ActingConfig config = Catch();
  config.actor.record_episodes = true;
  MemoryStorage storage;
  const CapturedLog log;
  const Recorded got = Record(config, &storage, 400);
  unsetenv("TROOP_FAILPOINT");
  ReloadFailpoint();
  EXPECT_GE(got.dropped, 1);
  for (const Episode& e : got.episodes) ExpectReplays(config.env, e);
}

TEST(ActorRecorderTest, WithoutTheKeyNothingIsWritten) {
  MemoryStorage storage;
  const Recorded got = Record(Catch(), nullptr, 400);
  EXPECT_TRUE(storage.List(kEpisodeFolder)->empty());
  EXPECT_EQ(got.count, 0);
}

// ---- Without an actor ----

TrajectoryBuilder::Step StepOf(const std::vector<float>& values, std::size_t t, bool ends) {
  static const std::int32_t action = 1;
  const auto all = std::as_bytes(std::span(values));
  return {.observation = all.subspan(4 * t, 4),
          .action = std::as_bytes(std::span(&action, 1)),
          .reward = values[t],
          .terminated = ends,
          .final_observation = ends ? all.subspan(4 * t + 4, 4) : std::span<const std::byte>()};
}

const EnvSpec kTiny{.id = "Tiny", .observation = {DType::kF32, {1}}, .action = {.count = 2}};
const std::vector<float> kValues = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

double MetricOf(ActorRecorder* recorder, const char* name) {
  Metrics metrics;
  recorder->Report(&metrics);
  return metrics.Get(name);
}

TEST(ActorRecorderTest, RecordsOnlyCompleteEpisodes) {
  MemoryStorage storage;
  auto recorder = *ActorRecorder::Make(kTiny, 1, {.storage = &storage, .name = "actor-0"}, {});
  // Not begun: the middle of an episode.
  recorder->Append(0, StepOf(kValues, 0, true));
  recorder->Begin(0, {.seed = 1});
  recorder->Append(0, StepOf(kValues, 0, false));
  recorder->Drop(0);  // a lost step
  recorder->Append(0, StepOf(kValues, 2, true));
  recorder->Begin(0, {.seed = 2});
  recorder->Append(0, StepOf(kValues, 0, false));
  recorder->Begin(0, {.seed = 3});  // restarted
  recorder->Append(0, StepOf(kValues, 5, true));
  const auto found = EpisodesIn(&storage, kEpisodeFolder);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].seed, 3u);
  EXPECT_EQ(found[0].steps, 1);
  EXPECT_EQ(MetricOf(recorder.get(), "actor/recorded_episodes"), 1);
  EXPECT_EQ(MetricOf(recorder.get(), "actor/unrecorded_episodes"), 2);
}

TEST(ActorRecorderTest, BoundsMemoryOfOpenEpisodes) {
  MemoryStorage storage;
  auto recorder = *ActorRecorder::Make(
      kTiny, 2, {.storage = &storage, .name = "actor-0", .bytes_max = 1000}, {});
  recorder->Begin(0, {});
  recorder->Begin(1, {});
  // 12 bytes a step: the long episode is dropped at its 83rd, the short one is recorded.
  for (int i = 0; i < 200; ++i) recorder->Append(0, StepOf(kValues, 0, false));
  EXPECT_EQ(MetricOf(recorder.get(), "actor/unrecorded_episodes"), 1);
  recorder->Append(1, StepOf(kValues, 0, true));
  EXPECT_EQ(MetricOf(recorder.get(), "actor/recorded_episodes"), 1);
}

TEST(ActorRecorderTest, FullDiskDoesNotEndRun) {
  MemoryStorage storage;
  auto recorder = *ActorRecorder::Make(kTiny, 1, {.storage = &storage, .name = "actor-0"}, {});
  storage.FailFrom(storage.changes(), ResourceExhausted("the disk is full"));
  const CapturedLog log;
  for (int i = 0; i < 3; ++i) {
    recorder->Begin(0, {});
    recorder->Append(0, StepOf(kValues, 0, true));
  }
  EXPECT_EQ(MetricOf(recorder.get(), "actor/unrecorded_episodes"), 3);
  EXPECT_NE(log.text().find("the disk is full"), std::string::npos);
  EXPECT_EQ(log.text().find("the disk is full"), log.text().rfind("the disk is full"));
  storage.Repair();
  recorder->Begin(0, {});
  recorder->Append(0, StepOf(kValues, 0, true));
  // The failed write left a part of a record in a file that could not be removed.
  EXPECT_EQ(EpisodesIn(&storage, kEpisodeFolder, true).size(), 1u);
}

}  // namespace
}  // namespace troop
