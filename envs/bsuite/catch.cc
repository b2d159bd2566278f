// Catch, the smallest environment: an agent that learns it works end to end.

#include "envs/bsuite/catch.h"

#include <algorithm>

#include "core/graphics/grid_picture.h"
#include "envs/episode_rng.h"
#include "envs/observation_io.h"

namespace troop {

Catch::Catch(std::int64_t max_episode_steps)
    : spec_{.id = "Catch-v0",
            .observation = {DType::kF32, {kRows, kColumns}},
            .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 3},
            .max_episode_steps = max_episode_steps} {}

void Catch::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  ball_row_ = 0;
  ball_column_ = int(EpisodeRng(seed).Below(kColumns));
  paddle_ = kColumns / 2;
  Observe(observation);
}

// The ball falls one row per step, so an episode has kRows - 1 steps (Osband et al. 2019, bsuite).
StepResult Catch::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  TROOP_CHECK(ball_row_ < kRows - 1, "no episode is under way: Reset");
  paddle_ = std::clamp(paddle_ + ReadDiscrete(action, 3) - 1, 0, kColumns - 1);
  ++ball_row_;
  Observe(observation);
  const bool truncated = ball_row_ == spec_.max_episode_steps;
  // Rewards come with the last row only.
  if (ball_row_ < kRows - 1) return {.truncated = truncated};
  return {
      .reward = ball_column_ == paddle_ ? 1.0f : -1.0f, .terminated = true, .truncated = truncated};
}

// One-hot board [rows, columns] f32; on the last row ball and paddle may share a cell.
void Catch::Observe(std::span<std::byte> observation) const {
  std::array<double, kRows * kColumns> cells{};
  cells[ball_row_ * kColumns + ball_column_] = 1;
  cells[(kRows - 1) * kColumns + paddle_] = 1;
  WriteFloats(cells, observation);
}

Environment::Picture Catch::Render() const {
  std::vector<Color> cells(kRows * kColumns, Color{24, 26, 32});
  cells[(kRows - 1) * kColumns + paddle_] = {70, 140, 220};
  cells[ball_row_ * kColumns + ball_column_] = {250, 220, 90};
  return DrawBoard(kRows, kColumns, cells);
}

}  // namespace troop
