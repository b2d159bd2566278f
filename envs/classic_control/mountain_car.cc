// MountainCar with Gymnasium's constants and order of operations.

#include <algorithm>
#include <cmath>

#include "envs/classic_control/classic_control.h"
#include "envs/episode_rng.h"
#include "envs/observation_io.h"

namespace troop {
namespace {

// Gymnasium's constants; positions and velocities per step, without units.
constexpr double kPositionMin = -1.2, kPositionMax = 0.6, kSpeedMax = 0.07, kGoal = 0.5;
constexpr double kForce = 0.001, kGravity = 0.0025;

}  // namespace

MountainCar::MountainCar(std::int64_t max_episode_steps)
    : ClassicControl({.id = "MountainCar-v0",
                      .observation = {DType::kF32, {2}},
                      .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 3},
                      .max_episode_steps = max_episode_steps}) {}

void MountainCar::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  set_state({EpisodeRng(seed).Uniform(-0.6, -0.4), 0});
  WriteFloats(state_, observation);
}

// The order of operations is Gymnasium's, since the trajectories must have the same bits.
StepResult MountainCar::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  auto& [position, velocity] = state_;
  velocity += (ReadDiscrete(action, 3) - 1) * kForce + std::cos(3 * position) * -kGravity;
  velocity = std::clamp(velocity, -kSpeedMax, kSpeedMax);
  position = std::clamp(position + velocity, kPositionMin, kPositionMax);
  if (position == kPositionMin && velocity < 0) velocity = 0;  // the left wall stops the car
  WriteFloats(state_, observation);
  return {.reward = -1, .terminated = position >= kGoal && velocity >= 0, .truncated = ClockEnds()};
}

}  // namespace troop
