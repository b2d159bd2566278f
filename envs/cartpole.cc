#include "envs/bytes.h"
#include "envs/cartpole_dynamics.h"
#include "envs/classic_control.h"
#include "envs/episode_rng.h"

namespace troop {

EnvSpec CartPole::Spec(std::int64_t max_episode_steps) {
  return {.id = "CartPole-v1",
          .observation = {DType::kF32, {4}},
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 2},
          .max_episode_steps = max_episode_steps};
}

CartPole::CartPole(std::int64_t max_episode_steps) : ClassicControl(Spec(max_episode_steps)) {}

CartPole::State CartPole::Start(std::uint64_t seed) {
  Rng rng = EpisodeRng(seed);
  State state{};
  for (double& value : state) value = rng.Uniform(-0.05, 0.05);
  return state;
}

void CartPole::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  set_state(Start(seed));
  WriteFloats(state_, observation);
}

StepResult CartPole::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  cartpole::State<double> s = {state_[0], state_[1], state_[2], state_[3]};
  cartpole::Advance(&s, ReadDiscrete(action, 2) == 1 ? cartpole::kForce : -cartpole::kForce);
  state_ = {s.x, s.x_dot, s.theta, s.theta_dot};
  WriteFloats(state_, observation);
  const bool terminated = s.x < -cartpole::kPositionMax || s.x > cartpole::kPositionMax ||
                          s.theta < -cartpole::kAngleMax || s.theta > cartpole::kAngleMax;
  return {.reward = 1, .terminated = terminated, .truncated = ClockEnds()};
}

}  // namespace troop
