#pragma once

#include <cstdint>

#include "envs/minatar/game.h"

namespace troop {

// Breakout, a game of game.h. Channels: paddle, ball, trail (the ball's previous cell), brick.
// Reward 1 per brick. The episode ends when the ball passes the paddle. There is no difficulty
// ramp: that option has no effect.
struct Breakout {
  static constexpr std::string_view kName = "Breakout";
  static constexpr std::array kActions = {minatar::kNone, minatar::kLeft, minatar::kRight};
  static constexpr int kSide = minatar::kSide, kChannels = 4, kCells = kSide * kSide * kChannels;
  static constexpr int kPaddleRow = 9, kFirstBrickRow = 1, kBrickRows = 3;
  static constexpr std::uint32_t kWall = (1u << (kBrickRows * kSide)) - 1;
  enum Channel { kPaddle, kBall, kTrail, kBrick };

  // The complete state between two steps.
  struct State {
    std::int8_t x = 0, y = 0;    // the ball
    std::int8_t dx = 0, dy = 0;  // its direction: -1 or 1 each
    std::int8_t trail_x = 0, trail_y = 0;
    std::int8_t paddle = 0;
    bool struck = false;       // the ball hit a brick in the last step
    std::uint32_t bricks = 0;  // bit 10 * (row - kFirstBrickRow) + column
  };
  using Luck = minatar::NoLuck;  // only the start is random
  struct Change : minatar::Outcome {
    std::int8_t brick = -1;  // bit index of the broken brick; -1: none
    bool new_wall = false;
  };

  // The ball starts at the left or right end of the lowest brick row, moving down and inward.
  static State Start(bool from_the_right);
  static State Start(bool ramping, Rng* rng) {
    (void)ramping;
    return Start((rng->NextU32() & 1) != 0);
  }
  static Luck Draw(const State&, std::int32_t, Rng*) { return {}; }

  // Plays one step. A ball that would enter a brick breaks it, stays in its row and reverses; a
  // ball that struck a brick in the previous step passes through. When the last brick is gone and
  // the ball reaches the paddle's row, a new wall appears. At the paddle the ball stays in its row
  // and bounces up: from directly above it keeps its horizontal direction, from the side it returns
  // on its path.
  static Change Advance(State* state, std::int32_t action, const Luck& luck = {});

  static void Write(const State& state, std::uint8_t* cells);
  // Updates the observation of `before` to that of `after`; `change` is the result of Advance.
  static void Update(const State& before, const State& after, const Change& change,
                     std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
