#pragma once

#include <array>
#include <cstdint>

#include "envs/minatar.h"

namespace troop {

// Asterix, a game of minatar.h. Channels: player, enemy, trail (behind what moves), gold.
//
// In eight lanes enemies and gold cross the board, at most one in each. Reward 1 per gold taken;
// the episode ends when an enemy meets the player. Ramp: every 101 steps something new comes a step
// sooner (at last every step), and at every second of these times all moves a step sooner as well.
struct Asterix {
  static constexpr std::string_view kName = "Asterix";
  static constexpr std::array kActions = {minatar::kNone, minatar::kLeft, minatar::kUp,
                                          minatar::kRight, minatar::kDown};
  static constexpr int kChannels = 4, kLanes = 8;
  enum Channel { kPlayer, kEnemy, kTrail, kGold };
  static constexpr std::int8_t kFirstSpawnInterval = 10, kFirstMoveInterval = 5;
  static constexpr std::int8_t kRampInterval = 100;
  static constexpr std::int8_t kNothing = -1;  // as an x: the lane is free

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
    bool moves_ramp_next = false;  // at every second ramp
    bool ramping = true;
  };
  struct Luck {  // who comes, where there is a free lane
    bool spawn = false, from_the_left = false, gold = false;
    std::int8_t rank = 0;  // the lane, counted among the free ones
  };
  using Change = minatar::Outcome;

  static State Start(bool ramping, Rng*) { return {.ramping = ramping}; }
  static Luck Draw(const State& state, std::int32_t action, Rng* rng);
  static Change Advance(State* state, std::int32_t action, const Luck& luck);
  static void Write(const State& state, std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
