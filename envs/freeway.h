#pragma once

#include <array>
#include <cstdint>

#include "envs/minatar.h"

namespace troop {

// Freeway, a game of minatar.h. Channels: chicken, car, and behind each car one of five for its
// speed, the fastest first.
//
// A chicken crosses eight lanes of cars, one step of the board in four. Reward 1 when it gets to
// the top: it starts anew from below, and the cars get other speeds. A car sends it back. The
// episode ends after 2501 steps: that is the game's own end, no clock. There is no difficulty ramp.
struct Freeway {
  static constexpr std::string_view kName = "Freeway";
  static constexpr std::array kActions = {minatar::kNone, minatar::kUp, minatar::kDown};
  static constexpr int kChannels = 7, kLanes = 8;
  enum Channel { kChicken, kCar, kFastest };
  static constexpr std::int8_t kColumn = 4, kBottom = 9;  // of the chicken
  static constexpr std::int8_t kMoveInterval = 3;
  static constexpr std::int16_t kSteps = 2500;

  // Moves every |speed| + 1 steps: to the right if positive.
  using Speeds = std::array<std::int8_t, kLanes>;
  struct State {
    std::int8_t row = kBottom;
    std::int8_t move_timer = kMoveInterval;
    std::int16_t steps_left = kSteps;
    Speeds speed{}, timer{}, x{};  // of the cars; car i is in row i + 1
  };
  struct Luck {
    bool fresh = false;
    Speeds speed{};  // 1 to 5 or -1 to -5 each
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
  // Turns the observation of `before` into that of `after`.
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
