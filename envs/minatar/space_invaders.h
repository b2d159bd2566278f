#pragma once

#include <array>
#include <cstdint>

#include "envs/minatar/game.h"

namespace troop {

// SpaceInvaders, a game of game.h. Channels: cannon, alien, alien going left, alien going right,
// the cannon's shot, the aliens' shot.
//
// Twenty-four aliens move sideways, and down by a row at each edge; they become faster as their
// number falls. The alien nearest to the cannon's column shoots. Reward 1 per alien; the episode
// ends when an alien or a shot reaches the cannon, or an alien would leave the board at the bottom.
// Ramp: the move interval of each new wave shrinks by a step, down to half of the first. Only
// sticky actions are random.
struct SpaceInvaders {
  static constexpr std::string_view kName = "SpaceInvaders";
  static constexpr std::array kActions = {minatar::kNone, minatar::kLeft, minatar::kRight,
                                          minatar::kFire};
  static constexpr int kSide = minatar::kSide, kChannels = 6, kCannonRow = kSide - 1;
  enum Channel { kCannon, kAlien, kAlienLeft, kAlienRight, kShot, kAlienShot };
  static constexpr std::int8_t kShotInterval = 5, kAlienShotInterval = 10;
  static constexpr std::int8_t kFirstMoveInterval = 12, kLastMoveInterval = 6;

  // Cells as bits: bit x of element y.
  using Board = std::array<std::uint16_t, kSide>;
  static constexpr Board kWave = {0xfc, 0xfc, 0xfc, 0xfc};

  struct State {
    Board aliens = kWave, shots{}, alien_shots{};
    std::int8_t x = 5;        // the cannon
    bool to_the_left = true;  // direction of the aliens
    std::int8_t move_interval = kFirstMoveInterval, move_timer = kFirstMoveInterval;
    std::int8_t shot_timer = 0, alien_shot_timer = kAlienShotInterval;
    std::int8_t alien_count = 24;
    bool ramping = true;
  };
  using Luck = minatar::NoLuck;
  using Change = minatar::Outcome;

  static State Start(bool ramping, Rng*) { return {.ramping = ramping}; }
  static Luck Draw(const State&, std::int32_t, Rng*) { return {}; }
  static Change Advance(State* state, std::int32_t action, const Luck& luck = {});
  static void Write(const State& state, std::uint8_t* cells);
  // Updates the observation of `before` to that of `after`.
  static void Update(const State& before, const State& after, const Change& change,
                     std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
