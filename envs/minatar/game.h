#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/philox.h"
#include "core/graphics/world_canvas.h"
#include "envs/environment.h"
#include "envs/vector_env.h"

namespace troop {

// Games on a board of 10 x 10 cells, compatible with MinAtar (Young & Tian 2019, arXiv:1903.03176).
// They were written from the published rules and from observing games, not from MinAtar's code.
// Observations are u8 0/1 [10, 10, channels].
//
// A game is a struct of types and static functions:
//   kName, kChannels, kActions              kActions: the minimal action set
//   State                                   all state between two steps; small and copyable
//   Luck                                    random choices of one step
//   Change                                  effect of a step: an Outcome or a derived type
//   State Start(bool ramping, Rng*)         the first state; `ramping`: difficulty increases
//   Luck Draw(const State&, action, Rng*)   samples only what the step needs
//   Change Advance(State*, action, const Luck&)       one step; REQUIRES: the game is not lost
//   void Write(const State&, std::uint8_t* cells)     the complete observation
//   Picture Render(const State&)
// Random choices are separate from the rules, so that tests can replay those of another
// implementation. A game may also have Update(before, after, change, cells), if it is faster than
// Write.
namespace minatar {

inline constexpr int kSide = 10;
// The full action set, in MinAtar's order.
enum Action : std::int32_t { kNone, kLeft, kUp, kRight, kDown, kFire };
inline constexpr std::int64_t kFullActions = 6;
// MinAtar's defaults: no step limit, and actions stick with probability 0.1.
inline constexpr std::int64_t kMaxEpisodeSteps = 0;
inline constexpr double kStickyActions = 0.1;

struct Outcome {
  std::int8_t reward = 0;
  bool lost = false;  // the episode ended
};

struct NoLuck {};

// Action sets by MinAtar's version: v0 has the full set (none, left, up, right, down, fire), v1 the
// minimal set, without actions that have no effect in the game.
enum class ActionSet : std::uint8_t { kFull, kMinimal };

// Random choices of an episode; all depend on its seed. With the given probability the previous
// action is played again instead of the agent's (Machado et al. 2018, "sticky actions"). Before the
// first step the previous action is "none", so that an episode depends on its seed alone (MinAtar
// keeps the last action of the preceding episode).
class Chance {
 public:
  Chance() : Chance(0, 0) {}
  Chance(std::uint64_t seed, double sticky_actions);
  Rng* rng() { return &rng_; }
  // Returns the action to play when the agent chose `action`.
  std::int32_t Play(std::int32_t action) {
    if (limit_ == 0 || rng_.NextU32() >= limit_) last_ = action;
    return last_;
  }

 private:
  Rng rng_;
  std::uint64_t limit_;  // probability * 2^32
  std::int32_t last_ = kNone;
};

// The spec of a game.
EnvSpec Spec(std::string_view name, int channels, std::span<const Action> minimal, ActionSet set,
             std::int64_t max_episode_steps);

// Draws the cells in the colors of their channels, later channels over earlier ones.
Environment::Picture DrawCells(std::span<const std::uint8_t> cells,
                               std::span<const Color> channel_colors);

}  // namespace minatar

// Factories, instantiated by each game's source file. REQUIRES: options as MakeEnvironment resolves
// them, without -1. The vector gives the same bytes as a loop over single environments.
template <class Game>
std::unique_ptr<Environment> MakeMinAtar(minatar::ActionSet set, const EnvOptions& options);
template <class Game>
std::unique_ptr<VectorEnv> MakeMinAtarVector(minatar::ActionSet set, const EnvOptions& options,
                                             int size, EpisodeSeeder seeder);

}  // namespace troop
