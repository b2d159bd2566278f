#include "envs/breakout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "envs/bytes.h"
#include "envs/episode_rng.h"
#include "envs/grid_picture.h"

namespace troop {
namespace breakout {
namespace {

constexpr int Cell(int row, int column, Channel channel) {
  return (row * kSide + column) * kChannels + channel;
}

// The bit of the brick at (row, column); no bit for rows without bricks.
constexpr int BrickNumber(int row, int column) { return (row - kFirstBrickRow) * kSide + column; }
constexpr std::uint32_t BrickBit(int row, int column) {
  const bool inside = row >= kFirstBrickRow && row < kFirstBrickRow + kBrickRows;
  return inside ? 1u << BrickNumber(row, column) : 0;
}

void WriteBricks(std::uint32_t bricks, std::uint8_t* observation) {
  std::uint8_t* cell = observation + Cell(kFirstBrickRow, 0, kBrick);
  for (int i = 0; i < kBrickRows * kSide; ++i) cell[i * kChannels] = (bricks >> i) & 1;
}

}  // namespace

State Start(bool from_the_right) {
  State state;
  state.x = from_the_right ? kSide - 1 : 0;
  state.y = 3;
  state.dx = from_the_right ? -1 : 1;
  state.dy = 1;
  state.trail_x = state.x;
  state.trail_y = state.y;
  state.paddle = 4;
  state.bricks = kWall;
  return state;
}

Change Advance(State* state, std::int32_t action) {
  State& s = *state;
  Change change;
  if (action == kLeft) s.paddle = std::max(s.paddle - 1, 0);
  if (action == kRight) s.paddle = std::min(s.paddle + 1, kSide - 1);
  s.trail_x = s.x;
  s.trail_y = s.y;
  int x = s.x + s.dx, y = s.y + s.dy;
  if (x < 0 || x >= kSide) {  // along the side wall for one step
    x = s.x;
    s.dx = -s.dx;
  }
  const bool struck_before = std::exchange(s.struck, false);
  if (y < 0) {  // along the ceiling
    y = 0;
    s.dy = 1;
  } else if ((s.bricks & BrickBit(y, x)) != 0) {
    s.struck = true;
    if (!struck_before) {
      s.bricks &= ~BrickBit(y, x);
      change.brick = std::int8_t(BrickNumber(y, x));
      y = s.y;
      s.dy = -s.dy;
    }
  } else if (y == kPaddleRow) {
    if (s.bricks == 0) {
      s.bricks = kWall;
      change.new_wall = true;
    }
    if (s.paddle == s.x || s.paddle == x) {
      if (s.paddle != s.x) s.dx = -s.dx;
      y = s.y;
      s.dy = -1;
    } else {
      change.lost = true;
    }
  }
  s.x = std::int8_t(x);
  s.y = std::int8_t(y);
  return change;
}

void Write(const State& state, std::uint8_t* observation) {
  std::memset(observation, 0, kCells);
  WriteBricks(state.bricks, observation);
  observation[Cell(kPaddleRow, state.paddle, kPaddle)] = 1;
  observation[Cell(state.y, state.x, kBall)] = 1;
  observation[Cell(state.trail_y, state.trail_x, kTrail)] = 1;
}

void Update(const State& before, const State& after, const Change& change,
            std::uint8_t* observation) {
  observation[Cell(kPaddleRow, before.paddle, kPaddle)] = 0;
  observation[Cell(before.y, before.x, kBall)] = 0;
  observation[Cell(before.trail_y, before.trail_x, kTrail)] = 0;
  observation[Cell(kPaddleRow, after.paddle, kPaddle)] = 1;
  observation[Cell(after.y, after.x, kBall)] = 1;
  observation[Cell(after.trail_y, after.trail_x, kTrail)] = 1;
  if (change.brick >= 0) {
    observation[Cell(kFirstBrickRow, 0, kBrick) + change.brick * kChannels] = 0;
  }
  if (change.new_wall) WriteBricks(after.bricks, observation);
}

Environment::Picture Draw(const State& state) {
  constexpr Color kBrickColors[kBrickRows] = {{210, 80, 70}, {225, 150, 60}, {110, 180, 90}};
  std::vector<Color> cells(kSide * kSide, Color{24, 26, 32});
  for (int row = kFirstBrickRow; row < kFirstBrickRow + kBrickRows; ++row) {
    for (int column = 0; column < kSide; ++column) {
      if ((state.bricks & BrickBit(row, column)) == 0) continue;
      cells[row * kSide + column] = kBrickColors[row - kFirstBrickRow];
    }
  }
  cells[state.trail_y * kSide + state.trail_x] = {110, 100, 60};
  cells[kPaddleRow * kSide + state.paddle] = {70, 140, 220};
  cells[state.y * kSide + state.x] = {250, 220, 90};
  return DrawBoard(kSide, kSide, cells);
}

EnvSpec Spec(ActionSet set, std::int64_t max_episode_steps) {
  const bool full = set == ActionSet::kFull;
  return {.id = full ? "MinAtar/Breakout-v0" : "MinAtar/Breakout-v1",
          .observation = {DType::kU8, {kSide, kSide, kChannels}},
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = full ? 6 : 3},
          .max_episode_steps = max_episode_steps};
}

Chance::Chance(std::uint64_t seed, double sticky_actions)
    : rng_(EpisodeRng(seed)),
      limit_(std::uint64_t(std::llround(sticky_actions * 0x1p32))),
      from_the_right_((rng_.NextU32() & 1) != 0) {}

}  // namespace breakout

Breakout::Breakout(breakout::ActionSet set, std::int64_t max_episode_steps, double sticky_actions)
    : spec_(breakout::Spec(set, max_episode_steps)), set_(set), sticky_actions_(sticky_actions) {}

void Breakout::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  chance_ = breakout::Chance(seed, sticky_actions_);
  state_ = breakout::Start(chance_.from_the_right());
  steps_ = 0;
  Observe(observation);
}

StepResult Breakout::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  TROOP_CHECK(state_.dx != 0 && state_.y < breakout::kPaddleRow, "no episode is under way: Reset");
  const std::int32_t wanted = ReadDiscrete(action, std::int32_t(spec_.action.count));
  const breakout::Change change =
      breakout::Advance(&state_, chance_.Play(breakout::FullAction(set_, wanted)));
  Observe(observation);
  return {.reward = change.brick >= 0 ? 1.0f : 0.0f,
          .terminated = change.lost,
          .truncated = ++steps_ == spec_.max_episode_steps};
}

void Breakout::Observe(std::span<std::byte> observation) const {
  TROOP_CHECK(observation.size() == breakout::kCells, "observation of {} bytes, not {}",
              breakout::kCells, observation.size());
  breakout::Write(state_, reinterpret_cast<std::uint8_t*>(observation.data()));
}

}  // namespace troop
