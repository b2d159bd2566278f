#pragma once

#include <array>
#include <cstdint>

#include "envs/minatar/game.h"

namespace troop {

// Asterix, a game of game.h. Channels: player, enemy, trail (the cell at the rear of what
// moves), gold.
//
// Enemies and gold cross the board in eight lanes, at most one per lane. Reward 1 per gold taken;
// the episode ends when an enemy touches the player. Ramp: every 102 steps the spawn interval
// shrinks by a step (down to 1), and every second time the move interval does too.
struct Asterix {
  static constexpr std::string_view kName = "Asterix";
  static constexpr std::array kActions = {minatar::kNone, minatar::kLeft, minatar::kUp,
                                          minatar::kRight, minatar::kDown};
  static constexpr int kChannels = 4, kLanes = 8;
  enum Channel { kPlayer, kEnemy, kTrail, kGold };
  static constexpr std::int8_t kFirstSpawnInterval = 10, kFirstMoveInterval = 5;
  static constexpr std::int8_t kRampInterval = 100;
  static constexpr std::int8_t kNothing = -1;  // value of x for an empty lane

  struct Being {
    std::int8_t x = kNothing;
    bool to_the_right = false, gold = false;
  };
  struct State {
    std::int8_t x = 5, y = 5;           // the player; y is in [1, kLanes]
    std::array<Being, kLanes> lanes{};  // lane i is row i + 1
    std::int8_t spawn_interval = kFirstSpawnInterval, spawn_timer = kFirstSpawnInterval;
    std::int8_t move_interval = kFirstMoveInterval, move_timer = kFirstMoveInterval;
    std::int8_t ramp_timer = kRampInterval;
    bool moves_ramp_next = false;  // toggles: true at every second ramp
    bool ramping = true;
  };
  struct Luck {  // random choices of a spawn, used if a lane is free
    bool spawn = false, from_the_left = false, gold = false;
    std::int8_t rank = 0;  // index of the lane among the free ones
  };
  using Change = minatar::Outcome;

  static State Start(bool ramping, Rng*) { return {.ramping = ramping}; }
  static Luck Draw(const State& state, std::int32_t action, Rng* rng);
  static Change Advance(State* state, std::int32_t action, const Luck& luck);
  static void Write(const State& state, std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
