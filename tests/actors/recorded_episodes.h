#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/storage/storage.h"
#include "envs/env_config.h"
#include "envs/environment.h"
#include "replay/episodes/episode.h"

// Recorded episodes, as actors and evaluations write them.
namespace troop {

// Reads the episodes of all files in a folder. torn: a file may end with a part of a record.
inline std::vector<Episode> EpisodesIn(Storage* storage, const std::string& folder,
                                       bool torn = false) {
  std::vector<Episode> found;
  const auto names = storage->List(folder);
  for (const std::string& name : *names) {
    EpisodeReader reader(*storage->Read(folder.empty() ? name : folder + "/" + name, 1 << 30));
    while (true) {
      auto next = reader.Next();
      EXPECT_TRUE(next.ok()) << next.status().ToString();
      if (!next.ok() || !next->has_value()) break;
      found.push_back(std::move(**next));
    }
    EXPECT_TRUE(torn || reader.torn_bytes() == 0);
  }
  return found;
}

// Plays the recorded actions from the recorded seed, and compares all that the environment returns.
inline void ExpectReplays(const EnvConfig& config, const Episode& e) {
  const auto env = *MakeEnvironment(config.id, EnvOptionsFor(config, true));
  EXPECT_EQ(e.observation, env->spec().observation);
  EXPECT_EQ(e.action, env->spec().action);
  const std::size_t frame = e.observation.bytes(), action = e.action.tensor().bytes();
  std::vector<std::byte> seen(frame);
  env->Reset(e.seed.value(), seen);
  for (std::int64_t t = 0; t <= e.steps; ++t) {
    const auto recorded = e.observations.bytes().subspan(std::size_t(t) * frame, frame);
    ASSERT_TRUE(std::ranges::equal(recorded, seen)) << "frame " << t;
    if (t == e.steps) break;
    const StepResult result =
        env->Step(e.actions.bytes().subspan(std::size_t(t) * action, action), seen);
    // Scaled by a power of two: exact.
    ASSERT_EQ(float(config.reward_scale) * result.reward, e.rewards.as<float>()[std::size_t(t)]);
    const bool last = t + 1 == e.steps;
    ASSERT_EQ(result.terminated, last && e.terminated) << "step " << t;
    // The limit of steps is that of the actor or the evaluation.
    ASSERT_TRUE(last || !result.truncated) << "step " << t;
  }
}

}  // namespace troop
