// Pendulum with Gymnasium's constants, order of operations and mix of f32 and f64.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "envs/classic_control/classic_control.h"
#include "envs/episode_rng.h"
#include "envs/observation_io.h"

namespace troop {
namespace {

constexpr double kPi = std::numbers::pi;
// Gymnasium's constants, in SI units; the torque limit in N m.
constexpr double kSpeedMax = 8, kGravity = 10, kMass = 1, kLength = 1;
constexpr double kStep = 0.05;  // s
constexpr float kTorqueMax = 2;

// Wraps an angle into [-pi, pi). numpy's remainder has the sign of the divisor, fmod that of the
// dividend.
double Normalize(double angle) {
  double turned = std::fmod(angle + kPi, 2 * kPi);
  if (turned < 0) turned += 2 * kPi;
  return turned - kPi;
}

}  // namespace

Pendulum::Pendulum(std::int64_t max_episode_steps)
    : ClassicControl({.id = "Pendulum-v1",
                      .observation = {DType::kF32, {3}},
                      .action = {.kind = ActionSpec::Kind::kContinuous,
                                 .low = {-kTorqueMax},
                                 .high = {kTorqueMax}},
                      .max_episode_steps = max_episode_steps}) {}

void Pendulum::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  Rng rng = EpisodeRng(seed);
  const double angle = rng.Uniform(-kPi, kPi);
  set_state({angle, rng.Uniform(-1, 1)});
  torque_ = 0;
  Observe(observation);
}

StepResult Pendulum::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  TROOP_CHECK(action.size() == sizeof(float), "an action has 4 bytes, not {}", action.size());
  std::memcpy(&torque_, action.data(), sizeof(float));
  torque_ = std::clamp(torque_, -kTorqueMax, kTorqueMax);
  auto& [angle, velocity] = state_;
  const double off = Normalize(angle);
  // Gymnasium's action is an f32, and therefore so are its products with constants.
  // The cost uses the state before the step.
  const double cost = off * off + 0.1 * (velocity * velocity) + 0.001f * (torque_ * torque_);
  const double pull = 3 * kGravity / (2 * kLength) * std::sin(angle);
  const float push = float(3.0 / (kMass * kLength * kLength)) * torque_;
  velocity = std::clamp(velocity + (pull + push) * kStep, -kSpeedMax, kSpeedMax);
  angle = angle + velocity * kStep;
  Observe(observation);
  return {.reward = float(-cost), .terminated = false, .truncated = ClockEnds()};
}

void Pendulum::Observe(std::span<std::byte> observation) const {
  const auto [angle, velocity] = state_;
  WriteFloats(std::array{std::cos(angle), std::sin(angle), velocity}, observation);
}

}  // namespace troop
