// Rules of Breakout, and observations that change only the affected cells.

#include "envs/minatar/breakout.h"

#include <algorithm>
#include <cstring>

#include "core/graphics/grid_picture.h"
#include "envs/minatar/minatar_env.h"

namespace troop {
namespace {

constexpr int kSide = Breakout::kSide, kFirstBrickRow = Breakout::kFirstBrickRow;
constexpr int kBrickRows = Breakout::kBrickRows, kChannels = Breakout::kChannels;

// Index of a cell in an observation [row, column, channel].
constexpr int Cell(int row, int column, Breakout::Channel channel) {
  return (row * kSide + column) * kChannels + channel;
}

// Bit index of the brick at (row, column), and its mask; the mask is 0 for rows without bricks.
constexpr int BrickNumber(int row, int column) { return (row - kFirstBrickRow) * kSide + column; }
constexpr std::uint32_t BrickBit(int row, int column) {
  const bool inside = row >= kFirstBrickRow && row < kFirstBrickRow + kBrickRows;
  return inside ? 1u << BrickNumber(row, column) : 0;
}

// Writes the bricks channel of all rows of the wall.
void WriteBricks(std::uint32_t bricks, std::uint8_t* observation) {
  std::uint8_t* cell = observation + Cell(kFirstBrickRow, 0, Breakout::kBrick);
  for (int i = 0; i < kBrickRows * kSide; ++i) cell[i * kChannels] = (bricks >> i) & 1;
}

}  // namespace

// The ball starts at a side wall and moves down and inwards.
Breakout::State Breakout::Start(bool from_the_right) {
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

// Order: paddle, trail, side walls, then ceiling, bricks or paddle row. Draws no random numbers.
Breakout::Change Breakout::Advance(State* state, std::int32_t action, const Luck&) {
  State& s = *state;
  Change change;
  if (action == minatar::kLeft) s.paddle = std::max(s.paddle - 1, 0);
  if (action == minatar::kRight) s.paddle = std::min(s.paddle + 1, kSide - 1);
  // The trail is the ball's position before this step.
  s.trail_x = s.x;
  s.trail_y = s.y;
  int x = s.x + s.dx, y = s.y + s.dy;
  if (x < 0 || x >= kSide) {  // the ball stays at the side wall for one step
    x = s.x;
    s.dx = -s.dx;
  }
  // A ball that struck a brick in the previous step passes through this one.
  const bool struck_before = std::exchange(s.struck, false);
  if (y < 0) {  // the ball stays at the ceiling for one step
    y = 0;
    s.dy = 1;
  } else if ((s.bricks & BrickBit(y, x)) != 0) {
    s.struck = true;
    if (!struck_before) {
      s.bricks &= ~BrickBit(y, x);
      change.reward = 1;
      change.brick = std::int8_t(BrickNumber(y, x));
      y = s.y;
      s.dy = -s.dy;
    }
  } else if (y == kPaddleRow) {
    // A new wall appears only now, never while the ball is among the bricks.
    if (s.bricks == 0) {
      s.bricks = kWall;
      change.new_wall = true;
    }
    // The paddle covers the ball's old or new column; an edge hit also reverses dx.
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

void Breakout::Write(const State& state, std::uint8_t* cells) {
  std::memset(cells, 0, kCells);
  WriteBricks(state.bricks, cells);
  cells[Cell(kPaddleRow, state.paddle, kPaddle)] = 1;
  cells[Cell(state.y, state.x, kBall)] = 1;
  cells[Cell(state.trail_y, state.trail_x, kTrail)] = 1;
}

// Clears all old cells before it sets new ones, because they may coincide.
void Breakout::Update(const State& before, const State& after, const Change& change,
                      std::uint8_t* cells) {
  cells[Cell(kPaddleRow, before.paddle, kPaddle)] = 0;
  cells[Cell(before.y, before.x, kBall)] = 0;
  cells[Cell(before.trail_y, before.trail_x, kTrail)] = 0;
  cells[Cell(kPaddleRow, after.paddle, kPaddle)] = 1;
  cells[Cell(after.y, after.x, kBall)] = 1;
  cells[Cell(after.trail_y, after.trail_x, kTrail)] = 1;
  if (change.brick >= 0) {
    cells[Cell(kFirstBrickRow, 0, kBrick) + change.brick * kChannels] = 0;
  }
  if (change.new_wall) WriteBricks(after.bricks, cells);
}

Environment::Picture Breakout::Render(const State& state) {
  // One color per row of bricks; later layers cover earlier ones.
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

template std::unique_ptr<Environment> MakeMinAtar<Breakout>(minatar::ActionSet, const EnvOptions&);
template std::unique_ptr<VectorEnv> MakeMinAtarVector<Breakout>(minatar::ActionSet,
                                                                const EnvOptions&, int,
                                                                EpisodeSeeder);

}  // namespace troop
