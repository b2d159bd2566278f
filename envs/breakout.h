#pragma once

#include <cstdint>
#include <span>

#include "core/rng.h"
#include "envs/environment.h"

namespace troop {

// Breakout on a 10 x 10 board, compatible with MinAtar's (Young & Tian 2019, arXiv:1903.03176), and
// written from its published rules and from watching it play, not from its code.
//
// Observation: u8 0/1 [10, 10, 4]; channels: paddle, ball, trail (where the ball was), brick.
// Reward 1 per brick. The episode ends when the ball passes the paddle. Breakout is a game without
// difficulty ramp: that option changes nothing.
namespace breakout {

inline constexpr int kSide = 10, kChannels = 4, kCells = kSide * kSide * kChannels;
inline constexpr int kPaddleRow = 9, kFirstBrickRow = 1, kBrickRows = 3;
inline constexpr std::uint32_t kWall = (1u << (kBrickRows * kSide)) - 1;
enum Channel { kPaddle, kBall, kTrail, kBrick };
enum Action : std::int32_t { kLeft = 1, kRight = 3 };  // all others do nothing: n l u r d f

// The whole state between two steps.
struct State {
  std::int8_t x = 0, y = 0;              // the ball
  std::int8_t dx = 0, dy = 0;            // its direction: -1 or 1 each
  std::int8_t trail_x = 0, trail_y = 0;
  std::int8_t paddle = 0;
  bool struck = false;                   // the ball met a brick in the last step
  std::uint32_t bricks = 0;              // bit 10 * (row - kFirstBrickRow) + column
};

// What a step did.
struct Change {
  std::int8_t brick = -1;     // the number of the bit that was broken
  bool new_wall = false;
  bool lost = false;          // the episode ended
};

// The ball enters at the left or the right end of the wall's lowest row, moving down and inwards.
State Start(bool from_the_right);

// One step. A ball that would enter a brick breaks it, stays in its row and turns back; but one
// that struck a brick in the step before flies through. When the last brick is gone and the ball
// comes down to the paddle's row, there is a new wall. At the paddle the ball stays in its row and
// turns up: from right above it keeps its sideways direction, from the side it goes back the way
// it came.
Change Advance(State* state, std::int32_t action);

// Writes the whole observation: kCells bytes.
void Write(const State& state, std::uint8_t* observation);

// Turns the observation of `before` into that of `after`; `change` is what Advance said.
void Update(const State& before, const State& after, const Change& change,
            std::uint8_t* observation);

Environment::Picture Draw(const State& state);

// An agent's action as the full set knows it: the minimal set is none, left, right.
enum class ActionSet { kFull, kMinimal };
EnvSpec Spec(ActionSet set, std::int64_t max_episode_steps);
inline std::int32_t FullAction(ActionSet set, std::int32_t action) {
  constexpr std::int32_t kMinimalActions[] = {0, kLeft, kRight};
  return set == ActionSet::kFull ? action : kMinimalActions[action];
}

// Chance in an episode: the side at the start, then one number per step. With the given probability
// the action played before is played once more instead of the agent's (Machado et al. 2018, "sticky
// actions"). The first step has "none" before it, so that an episode depends on its seed alone
// (MinAtar remembers the last action of the episode before).
class Chance {
 public:
  Chance() : Chance(0, 0) {}
  Chance(std::uint64_t seed, double sticky_actions);
  bool from_the_right() const { return from_the_right_; }
  // The action that is played when the agent wants `action`.
  std::int32_t Play(std::int32_t action) {
    if (limit_ == 0 || rng_.NextU32() >= limit_) last_ = action;
    return last_;
  }

 private:
  Rng rng_;
  std::uint64_t limit_;  // of 2^32
  bool from_the_right_;
  std::int32_t last_ = 0;
};

}  // namespace breakout

// Ids as MinAtar registers them: v0 has the full action set (none, left, up, right, down, fire), v1
// the minimal one (none, left, right).
class Breakout final : public Environment {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = 0;
  static constexpr double kStickyActions = 0.1;
  Breakout(breakout::ActionSet set, std::int64_t max_episode_steps, double sticky_actions);
  const EnvSpec& spec() const override { return spec_; }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override { return breakout::Draw(state_); }

  const breakout::State& state() const { return state_; }
  void set_state(const breakout::State& state) { state_ = state; }

 private:
  void Observe(std::span<std::byte> observation) const;

  const EnvSpec spec_;
  const breakout::ActionSet set_;
  const double sticky_actions_;
  breakout::Chance chance_;
  breakout::State state_;
  std::int64_t steps_ = 0;
};

}  // namespace troop
