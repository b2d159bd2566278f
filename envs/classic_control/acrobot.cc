// Acrobot with the equations of "the book" and a Runge-Kutta step, as Gymnasium has them.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "envs/classic_control/classic_control.h"
#include "envs/episode_rng.h"
#include "envs/observation_io.h"

namespace troop {
namespace {

constexpr double kPi = std::numbers::pi;
// Masses in kg, lengths in m, centers of mass from the upper joint in m, inertias in kg m^2.
constexpr double kMass1 = 1, kMass2 = 1, kLength1 = 1, kCentre1 = 0.5, kCentre2 = 0.5;
constexpr double kInertia1 = 1, kInertia2 = 1, kGravity = 9.8;
constexpr double kStep = 0.2;  // s
constexpr double kVelocityMax1 = 4 * kPi, kVelocityMax2 = 9 * kPi;

using State = Acrobot::State;

// Time derivative of the state: Sutton & Barto 1998, sec. 11.3 ("the book's" equations). The names
// follow the book; angle 0 hangs down.
State Derivative(const State& s, double torque) {
  const auto [theta1, theta2, velocity1, velocity2] = s;
  const double cos2 = std::cos(theta2), sin2 = std::sin(theta2);
  const double d1 =
      kMass1 * (kCentre1 * kCentre1) +
      kMass2 * (kLength1 * kLength1 + kCentre2 * kCentre2 + 2 * kLength1 * kCentre2 * cos2) +
      kInertia1 + kInertia2;
  const double d2 = kMass2 * (kCentre2 * kCentre2 + kLength1 * kCentre2 * cos2) + kInertia2;
  const double phi2 = kMass2 * kCentre2 * kGravity * std::cos(theta1 + theta2 - kPi / 2);
  const double phi1 =
      -kMass2 * kLength1 * kCentre2 * (velocity2 * velocity2) * sin2 -
      2 * kMass2 * kLength1 * kCentre2 * velocity2 * velocity1 * sin2 +
      (kMass1 * kCentre1 + kMass2 * kLength1) * kGravity * std::cos(theta1 - kPi / 2) + phi2;
  const double acceleration2 =
      (torque + d2 / d1 * phi1 - kMass2 * kLength1 * kCentre2 * (velocity1 * velocity1) * sin2 -
       phi2) /
      (kMass2 * (kCentre2 * kCentre2) + kInertia2 - d2 * d2 / d1);
  return {velocity1, velocity2, -(d2 * acceleration2 + phi1) / d1, acceleration2};
}

// Returns a + factor * b.
State Plus(const State& a, double factor, const State& b) {
  State sum;
  for (int i = 0; i < 4; ++i) sum[i] = a[i] + factor * b[i];
  return sum;
}

// One step of the classical fourth-order Runge-Kutta method.
State RungeKutta(const State& s, double torque) {
  const State k1 = Derivative(s, torque);
  const State k2 = Derivative(Plus(s, kStep / 2, k1), torque);
  const State k3 = Derivative(Plus(s, kStep / 2, k2), torque);
  const State k4 = Derivative(Plus(s, kStep, k3), torque);
  State sum;
  for (int i = 0; i < 4; ++i) sum[i] = k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i];
  return Plus(s, kStep / 6, sum);
}

// Wraps an angle into [-pi, pi] by whole turns, like Gymnasium's wrap(): fmod would round
// differently.
double Wrap(double angle) {
  while (angle > kPi) angle -= 2 * kPi;
  while (angle < -kPi) angle += 2 * kPi;
  return angle;
}

}  // namespace

Acrobot::Acrobot(std::int64_t max_episode_steps)
    : ClassicControl({.id = "Acrobot-v1",
                      .observation = {DType::kF32, {6}},
                      .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 3},
                      .max_episode_steps = max_episode_steps}) {}

void Acrobot::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  Rng rng = EpisodeRng(seed);
  State state{};
  for (double& value : state) value = float(rng.Uniform(-0.1, 0.1));  // starts at f32 values
  set_state(state);
  Observe(observation);
}

StepResult Acrobot::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  // Same order as Gymnasium: integrate, wrap the angles, clip the velocities.
  State s = RungeKutta(state_, ReadDiscrete(action, 3) - 1.0);
  s[0] = Wrap(s[0]);
  s[1] = Wrap(s[1]);
  s[2] = std::clamp(s[2], -kVelocityMax1, kVelocityMax1);
  s[3] = std::clamp(s[3], -kVelocityMax2, kVelocityMax2);
  state_ = s;
  Observe(observation);
  // The tip is more than one link length above the upper joint.
  const bool terminated = -std::cos(s[0]) - std::cos(s[1] + s[0]) > 1;
  return {.reward = terminated ? 0.0f : -1.0f, .terminated = terminated, .truncated = ClockEnds()};
}

void Acrobot::Observe(std::span<std::byte> observation) const {
  const auto [theta1, theta2, velocity1, velocity2] = state_;
  const double values[] = {std::cos(theta1), std::sin(theta1), std::cos(theta2),
                           std::sin(theta2), velocity1,        velocity2};
  WriteFloats(values, observation);
}

}  // namespace troop
