#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "envs/minatar/game.h"

namespace troop {

// Seaquest, a game of game.h. Channels: front and back of the player's submarine, its shots,
// trail (the cell at the rear of what swims), enemy shots, enemy fish, enemy submarines, oxygen (in
// row 9, from the left), divers on board (in row 9, up to column 8), divers.
//
// Reward 1 per enemy shot down, and at the surface with six divers on board up to 10, by the
// remaining oxygen. The episode ends when an enemy or its shot touches the player, when the oxygen
// runs out, and at the surface without a diver on board. Ramp: at each surfacing the spawn interval
// of enemies shrinks by a step (down to 1), and at every second one their move interval does too.
struct Seaquest {
  static constexpr std::string_view kName = "Seaquest";
  static constexpr std::array kActions = {minatar::kNone,  minatar::kLeft, minatar::kUp,
                                          minatar::kRight, minatar::kDown, minatar::kFire};
  static constexpr int kSide = minatar::kSide, kChannels = 10;
  enum Channel {
    kFront,
    kBack,
    kShot,
    kTrail,
    kEnemyShot,
    kFish,
    kEnemySubmarine,
    kOxygen,
    kDiversOnBoard,
    kDiver
  };
  static constexpr int kLowestRow = 8, kGaugeRow = 9, kDiversMax = 6;
  static constexpr std::int16_t kOxygenMax = 200;
  static constexpr std::int8_t kFirstSpawnInterval = 20, kDiverSpawnInterval = 30;
  static constexpr std::int8_t kFirstMoveInterval = 5, kLastMoveInterval = 2;
  static constexpr std::int8_t kShotInterval = 5, kEnemyShotInterval = 10, kDiverMoveInterval = 5;

  // An object that moves on its own: a shot, an enemy or a diver.
  struct Swimmer {
    std::int8_t x = 0, y = 0;
    bool to_the_right = false;
    std::int8_t move_timer = 0, shot_timer = 0;
  };
  // A short list, oldest first. Invariant: size() <= kMax, which cannot be exceeded: at the end of
  // the ramp an enemy appears every second step and leaves after thirty, so at most fifteen exist,
  // each with one shot, which leaves after ten of its eleven steps.
  class Swimmers {
   public:
    static constexpr int kMax = 32;
    int size() const { return size_; }
    std::span<const Swimmer> all() const { return {at_.data(), std::size_t(size_)}; }
    Swimmer& operator[](int i) { return at_[std::size_t(i)]; }
    void Add(const Swimmer& swimmer) {
      TROOP_CHECK(size_ < kMax, "more than {} of a kind on the board", kMax);
      at_[std::size_t(size_++)] = swimmer;
    }
    void Remove(int i) {
      std::copy(at_.begin() + i + 1, at_.begin() + size_, at_.begin() + i);
      --size_;
    }

   private:
    std::array<Swimmer, kMax> at_{};
    std::int16_t size_ = 0;
  };

  struct State {
    std::int8_t x = 5, y = 0;  // the player; row 0 is the surface
    bool to_the_right = false, at_surface = true;
    std::int16_t oxygen = kOxygenMax;
    // At the surface one diver leaves. Six leave all at once, and then one more as in MinAtar, so
    // that the count becomes -1.
    std::int8_t divers_on_board = 0;
    std::int8_t shot_timer = 0;
    std::int8_t spawn_interval = kFirstSpawnInterval, spawn_timer = kFirstSpawnInterval;
    std::int8_t diver_timer = kDiverSpawnInterval;
    std::int8_t move_interval = kFirstMoveInterval;
    bool moves_ramp_next = false;  // toggles: true at every second ramp
    bool ramping = true;
    Swimmers shots, enemy_shots, fish, submarines, divers;
  };
  struct Newcomer {
    bool comes = false, from_the_left = false;
    bool submarine = false;  // kind of an enemy: submarine or fish
    std::int8_t row = 0;     // 1 to 8
  };
  struct Luck {
    Newcomer enemy;  // discarded if its row has enemies in the other direction
    Newcomer diver;
  };
  using Change = minatar::Outcome;

  static State Start(bool ramping, Rng*) {
    State state;
    state.ramping = ramping;
    return state;
  }
  static Luck Draw(const State& state, std::int32_t action, Rng* rng);
  static Change Advance(State* state, std::int32_t action, const Luck& luck);
  static void Write(const State& state, std::uint8_t* cells);
  static Environment::Picture Render(const State& state);
};

}  // namespace troop
