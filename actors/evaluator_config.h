#pragma once

#include <cstdint>

#include "actors/evaluation_env_config.h"

namespace troop {

class ConfigVisitor;

// The evaluator ([evaluator]).
struct EvaluatorConfig {
  bool enabled = true;
  double every_s = 5;  // between evaluations during training
  std::int64_t episodes = 10;
  std::int64_t final_episodes = -1;  // see FinalEpisodes
  double epsilon = 0;
  std::int64_t envs = 10;
  std::int64_t max_episode_steps = 108000;   // if the environment has no limit
  double stop_at_return = 0;                 // mean return that ends the run; 0: off
  std::int64_t early_stopping_patience = 0;  // evaluations without a better one; 0: off
  std::int64_t video_every = 0;              // evaluations between videos; 0: none
  std::int64_t video_episodes = 1;           // per video
  std::int64_t video_frames_max = 1000;      // per video
  std::int64_t videos_kept = 10;             // newest ones
  bool keep_best = false;                    // keep the weights of the best evaluation
  EvaluationEnvConfig env;                   // differences from the actors' environment
  bool operator==(const EvaluatorConfig&) const = default;
};
// Declares the keys.
void VisitKeys(EvaluatorConfig& config, ConfigVisitor& visitor);

// Number of episodes of the final evaluation: final_episodes; if that is -1, 100 episodes, or all
// test examples of a supervised run.
inline std::int64_t FinalEpisodes(const EvaluatorConfig& config, bool supervised) {
  // kReviews exceeds any data set, so it means all test examples.
  constexpr std::int64_t kEpisodes = 100, kReviews = 1'000'000;
  if (config.final_episodes >= 0) return config.final_episodes;
  return supervised ? kReviews : kEpisodes;
}

}  // namespace troop
