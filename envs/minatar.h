#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/rng.h"
#include "envs/canvas.h"
#include "envs/environment.h"
#include "envs/vector_env.h"

namespace troop {

// Games on a board of 10 x 10 cells, compatible with MinAtar's (Young & Tian 2019,
// arXiv:1903.03176), and written from their published rules and from watching them play, not from
// their code. Observations are u8 0/1 [10, 10, channels].
//
// A game is a struct of types and static functions:
//   kName, kChannels, kActions              the last: what the minimal action set is, in the full
//   one State                                   all there is between two steps; small and copyable
//   Luck                                    what chance decides in one step
//   Change                                  what a step did: an Outcome, or more
//   State Start(bool ramping, Rng*)         the first state; `ramping`: it gets harder with time
//   Luck Draw(const State&, action, Rng*)   takes as few numbers as the step needs
//   Change Advance(State*, action, const Luck&)       one step; REQUIRES: the game is not lost
//   void Write(const State&, std::uint8_t* cells)     the whole observation
//   Picture Render(const State&)
// Chance is apart from the rules, so that tests can play what another implementation drew.
// A game may also have Update(before, after, change, cells), where that is faster than Write.
namespace minatar {

inline constexpr int kSide = 10;
// The full action set, in MinAtar's order.
enum Action : std::int32_t { kNone, kLeft, kUp, kRight, kDown, kFire };
inline constexpr std::int64_t kFullActions = 6;
// MinAtar's defaults: episodes have no clock, and one action in ten sticks.
inline constexpr std::int64_t kMaxEpisodeSteps = 0;
inline constexpr double kStickyActions = 0.1;

struct Outcome {
  std::int8_t reward = 0;
  bool lost = false;  // the episode ended
};

struct NoLuck {};

// Ids as MinAtar registers them: v0 has the full action set (none, left, up, right, down, fire), v1
// the minimal one, without those that do nothing in the game.
enum class ActionSet : std::uint8_t { kFull, kMinimal };

// Chance in an episode: all of it comes from the episode's seed. With the given probability the
// action played before is played once more instead of the agent's (Machado et al. 2018, "sticky
// actions"). The first step has "none" before it, so that an episode depends on its seed alone
// (MinAtar remembers the last action of the episode before).
class Chance {
 public:
  Chance() : Chance(0, 0) {}
  Chance(std::uint64_t seed, double sticky_actions);
  Rng* rng() { return &rng_; }
  // The action that is played when the agent wants `action`.
  std::int32_t Play(std::int32_t action) {
    if (limit_ == 0 || rng_.NextU32() >= limit_) last_ = action;
    return last_;
  }

 private:
  Rng rng_;
  std::uint64_t limit_;  // of 2^32
  std::int32_t last_ = kNone;
};

EnvSpec Spec(std::string_view name, int channels, std::span<const Action> minimal, ActionSet set,
             std::int64_t max_episode_steps);

// The cells in the colours of their channels, later channels over earlier ones.
Environment::Picture DrawCells(std::span<const std::uint8_t> cells,
                               std::span<const Color> channel_colors);

}  // namespace minatar

// Each game's own file instantiates them. REQUIRES: options as MakeEnvironment resolves them,
// without -1. The vector gives the same bytes as a loop over single environments.
template <class Game>
std::unique_ptr<Environment> MakeMinAtar(minatar::ActionSet set, const EnvOptions& options);
template <class Game>
std::unique_ptr<VectorEnv> MakeMinAtarVector(minatar::ActionSet set, const EnvOptions& options,
                                             int size, EpisodeSeeder seeder);

}  // namespace troop
