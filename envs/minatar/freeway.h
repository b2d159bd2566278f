#pragma once

#include <array>
#include <cstdint>

#include "envs/minatar/game.h"

namespace troop {

// Freeway, a game of game.h. Channels: chicken, car, and five for the cell at the rear of a car,
// one per speed, the fastest first.
//
// A chicken crosses eight lanes of cars and can move every fourth step. Reward 1 when it reaches
// the top: it starts again at the bottom, and the cars get new speeds. A car sends it back. The
// episode terminates after 2501 steps, by the rules of the game, not by a limit. There is no
// difficulty ramp.
struct Freeway {
  static constexpr std::string_view kName = "Freeway";
  static constexpr std::array kActions = {minatar::kNone, minatar::kUp, minatar::kDown};
  static constexpr int kChannels = 7, kLanes = 8;
  enum Channel { kChicken, kCar, kFastest };
  static constexpr std::int8_t kColumn = 4, kBottom = 9;  // position of the chicken
  static constexpr std::int8_t kMoveInterval = 3;
  static constexpr std::int16_t kSteps = 2500;

  // Car speeds: a car moves every |speed| + 1 steps, to the right if positive.
  using Speeds = std::array<std::int8_t, kLanes>;
  struct State {
    std::int8_t row = kBottom;
    std::int8_t move_timer = kMoveInterval;
    std::int16_t steps_left = kSteps;
    Speeds speed{}, timer{}, x{};  // car i is in row i + 1
  };
  struct Luck {
    bool fresh = false;  // the chicken gets across: `speed` replaces the speeds
    Speeds speed{};      // 1 to 5 or -1 to -5 each
  };
  using Change = minatar::Outcome;

  static State Start(const Speeds& speed);
  static State Start(bool ramping, Rng* rng) {
    (void)ramping;
    return Start(DrawSpeeds(rng));
  }
  static Luck Draw(const State& state, std::int32_t action, Rng* rng) {
    if (!GetsAcross(state, action)) return {};
    return {true, DrawSpeeds(rng)};
  }
  static Change Advance(State* state, std::int32_t action, const Luck& luck);
  static void Write(const State& state, std::uint8_t* cells);
  // Updates the observation of `before` to that of `after`.
  static void Update(const State& before, const State& after, const Change& change,
                     std::uint8_t* cells);
  static Environment::Picture Render(const State& state);

 private:
  static Speeds DrawSpeeds(Rng* rng);
  static bool GetsAcross(const State& state, std::int32_t action) {
    return action == minatar::kUp && state.move_timer == 0 && state.row == 1;
  }
};

}  // namespace troop
