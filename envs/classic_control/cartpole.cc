// CartPole as a single environment; the dynamics are in cartpole_dynamics.h.

#include "envs/classic_control/cartpole_dynamics.h"
#include "envs/classic_control/classic_control.h"
#include "envs/episode_rng.h"
#include "envs/observation_io.h"

namespace troop {
namespace {

// Limits as in Gymnasium: the comparison excludes the bounds themselves.
bool Ended(double x, double theta) {
  return x < -cartpole::kPositionMax || x > cartpole::kPositionMax ||
         theta < -cartpole::kAngleMax || theta > cartpole::kAngleMax;
}

}  // namespace

EnvSpec CartPole::Spec(std::int64_t max_episode_steps) {
  return {.id = "CartPole-v1",
          .observation = {DType::kF32, {4}},
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 2},
          .max_episode_steps = max_episode_steps};
}

CartPole::CartPole(std::int64_t max_episode_steps) : ClassicControl(Spec(max_episode_steps)) {}

// Each element is uniform in ±0.05, as in Gymnasium.
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

// The step that ends the episode is rewarded too.
StepResult CartPole::Step(std::span<const std::byte> action, std::span<std::byte> observation) {
  TROOP_CHECK(!Ended(state_[0], state_[2]), "no episode is under way: Reset");
  cartpole::State<double> s = {state_[0], state_[1], state_[2], state_[3]};
  cartpole::Advance(&s, ReadDiscrete(action, 2) == 1 ? cartpole::kForce : -cartpole::kForce);
  state_ = {s.x, s.x_dot, s.theta, s.theta_dot};
  WriteFloats(state_, observation);
  return {.reward = 1, .terminated = Ended(s.x, s.theta), .truncated = ClockEnds()};
}

StatelessCartPole::StatelessCartPole(std::int64_t max_episode_steps)
    : inner_(max_episode_steps), spec_(inner_.spec()) {
  spec_.id = "StatelessCartPole-v1";
  spec_.observation.shape = {2};
}

void StatelessCartPole::Observe(std::span<std::byte> observation) const {
  WriteFloats(std::array{inner_.state()[0], inner_.state()[2]}, observation);
}

void StatelessCartPole::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  inner_.set_state(CartPole::Start(seed));
  Observe(observation);
}

// The four elements of the inner environment's observation are not used.
StepResult StatelessCartPole::Step(std::span<const std::byte> action,
                                   std::span<std::byte> observation) {
  std::array<std::byte, 4 * sizeof(float)> whole;
  const StepResult result = inner_.Step(action, whole);
  Observe(observation);
  return result;
}

}  // namespace troop
