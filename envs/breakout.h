#pragma once

#include <cstdint>

#include "envs/minatar.h"

namespace troop {

// Breakout, a game of minatar.h. Channels: paddle, ball, trail (where the ball was), brick.
// Reward 1 per brick. The episode ends when the ball passes the paddle. Breakout is a game without
// difficulty ramp: that option changes nothing.
struct Breakout {
  static constexpr std::string_view kName = "Breakout";
  static constexpr std::array kActions = {minatar::kNone, minatar::kLeft, minatar::kRight};
  static constexpr int kSide = minatar::kSide, kChannels = 4, kCells = kSide * kSide * kChannels;
  static constexpr int kPaddleRow = 9, kFirstBrickRow = 1, kBrickRows = 3;
  static constexpr std::uint32_t kWall = (1u << (kBrickRows * kSide)) - 1;
  enum Channel { kPaddle, kBall, kTrail, kBrick };

  // The whole state between two steps.
  struct State {
    std::int8_t x = 0, y = 0;    // the ball
    std::int8_t dx = 0, dy = 0;  // its direction: -1 or 1 each
    std::int8_t trail_x = 0, trail_y = 0;
    std::int8_t paddle = 0;
    bool struck = false;       // the ball met a brick in the last step
    std::uint32_t bricks = 0;  // bit 10 * (row - kFirstBrickRow) + column
  };
  using Luck = minatar::NoLuck;  // only at the start
  struct Change : minatar::Outcome {
    std::int8_t brick = -1;  // the number of the bit that was broken
    bool new_wall = false;
  };

  // The ball enters at the left or the right end of the wall's lowest row, moving down and inwards.
  static State Start(bool from_the_right);
  static State Start(bool ramping, Rng* rng) {
    (void)ramping;
    return Start((rng->NextU32() & 1) != 0);
  }
  static Luck Draw(const State&, std::int32_t, Rng*) { return {}; }

  // One step. A ball that would enter a brick breaks it, stays in its row and turns back; but one
  // that struck a brick in the step before flies through. When the last brick is gone and the ball
  // comes down to the paddle's row, there is a new wall. At the paddle the ball stays in its row
  // and turns up: from right above it keeps its sideways direction, from the side it goes back the
  // way it came.
  static Change Advance(State* state, std::int32_t action, const Luck& luck = {});

  static void Write(const State& state, std::uint8_t* cells);
  // Turns the observation of `before` into that of `after`; `change` is what Advance said.
  static void Update(const State& before, const State& after, const Change& change,
                     std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
