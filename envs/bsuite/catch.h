#pragma once

#include <cstdint>

#include "envs/environment.h"

namespace troop {

// Catch, as in bsuite (Osband et al. 2020, sec. "Catch"): a ball falls one row per step from a
// random column of the top row, and a paddle in the bottom row moves left, stays or moves right
// (actions 0, 1, 2). Reward +1 if the ball is caught, else -1; an episode always has 9 steps.
// Observation: f32 [10, 5], 1 at the ball and at the paddle.
class Catch final : public Environment {
 public:
  static constexpr int kRows = 10, kColumns = 5;
  static constexpr std::int64_t kMaxEpisodeSteps = 0;
  explicit Catch(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  const EnvSpec& spec() const override { return spec_; }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override;

 private:
  void Observe(std::span<std::byte> observation) const;

  EnvSpec spec_;
  int ball_row_ = 0, ball_column_ = 0, paddle_ = 0;  // ball_row_ also counts the steps
};

}  // namespace troop
