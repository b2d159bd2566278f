#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "envs/environment.h"

namespace troop {

// Classic-control environments with the dynamics of Gymnasium 1.4: the state is f64, the
// observation f32, and operations have the same order. The start state has the same distribution
// but comes from Troop's own random stream. `set_state` puts an environment into a state, as if an
// episode had reached it after `steps` steps: for tests and pictures.

// Common part: the spec, the step limit and the state.
template <int kStates>
class ClassicControl : public Environment {
 public:
  using State = std::array<double, kStates>;
  const EnvSpec& spec() const override { return spec_; }
  const State& state() const { return state_; }
  void set_state(const State& state, std::int64_t steps = 0) {
    state_ = state;
    steps_ = steps;
  }

 protected:
  explicit ClassicControl(EnvSpec spec) : spec_(std::move(spec)) {}
  // Counts a step; true if it reaches the step limit.
  bool ClockEnds() { return ++steps_ == spec_.max_episode_steps; }

  EnvSpec spec_;
  State state_{};
  std::int64_t steps_ = 0;
};

// Barto, Sutton & Anderson 1983. State and observation: cart position (m), velocity, pole angle
// (rad), angular velocity. Actions: push left, push right. Reward 1 per step. Ends when the pole
// leans over 12 degrees or the cart leaves +-2.4 m.
// REQUIRES for set_state: |angle| <= 12 degrees, as in every state that a step may start from.
class CartPole final : public ClassicControl<4> {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = 500;
  explicit CartPole(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  static EnvSpec Spec(std::int64_t max_episode_steps);
  static State Start(std::uint64_t seed);  // each within +-0.05
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override;
};

// CartPole without both velocities in the observation: cart position (m), pole angle (rad). A
// policy needs earlier observations to balance the pole (RLlib's StatelessCartPole).
class StatelessCartPole final : public Environment {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = CartPole::kMaxEpisodeSteps;
  explicit StatelessCartPole(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  const EnvSpec& spec() const override { return spec_; }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override { return inner_.Render(); }

 private:
  void Observe(std::span<std::byte> observation) const;
  CartPole inner_;
  EnvSpec spec_;
};

// Sutton 1996: a double pendulum, driven at the elbow, that must swing its tip above the bar.
// State: two angles, two angular velocities. Observation: cos and sin of both angles, velocities.
// Actions: torque -1, 0, +1. Reward -1 per step, 0 for the step that reaches the goal.
class Acrobot final : public ClassicControl<4> {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = 500;
  explicit Acrobot(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override;

 private:
  void Observe(std::span<std::byte> observation) const;
};

// Moore 1990: a car whose engine is too weak for the hill. State and observation: position,
// velocity. Actions: push left, nothing, push right. Reward -1 per step. Ends at position 0.5.
class MountainCar final : public ClassicControl<2> {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = 200;
  explicit MountainCar(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override;
};

// A pendulum that must be swung up and balanced. State: angle (0: up), angular velocity.
// Observation: cos and sin of the angle, velocity. Action: torque, clipped to [-2, 2]. Reward
// -(angle^2 + 0.1 velocity^2 + 0.001 torque^2). Never terminates; only the step limit ends it.
class Pendulum final : public ClassicControl<2> {
 public:
  static constexpr std::int64_t kMaxEpisodeSteps = 200;
  explicit Pendulum(std::int64_t max_episode_steps = kMaxEpisodeSteps);
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Picture Render() const override;

 private:
  void Observe(std::span<std::byte> observation) const;
  float torque_ = 0;  // last torque, for the picture
};

}  // namespace troop
