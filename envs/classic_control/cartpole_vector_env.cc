// CartPole vector: states as a structure of arrays, stepped by SIMD code.

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "envs/classic_control/cartpole_batch.h"
#include "envs/classic_control/classic_control.h"
#include "envs/vector/native_vector_env.h"

namespace troop {
namespace {

static_assert(NativeVectorEnv::kRowMultiple % cartpole::kLaneMultiple == 0);

// Environments from size() on pad the last SIMD vector. They are reset to the rest state after each
// step, so that their values stay finite, and are never read.
class CartPoleVectorEnv final : public NativeVectorEnv {
 public:
  CartPoleVectorEnv(std::int64_t max_episode_steps, int size, EpisodeSeeder seeder)
      : NativeVectorEnv(CartPole::Spec(max_episode_steps), size, std::move(seeder)),
        action_((size + kRowMultiple - 1) / kRowMultiple * kRowMultiple),
        x_(action_.size()),
        x_dot_(action_.size()),
        theta_(action_.size()),
        theta_dot_(action_.size()),
        steps_(size),
        step_(cartpole::StepFor(cartpole::FastestPath())) {}

  Environment::Picture Render(int index) const override {
    TROOP_CHECK(index >= 0 && index < size_, "environment {} of {}", index, size_);
    // Rendering is rare: convert the state to a single environment.
    CartPole env;
    env.set_state({x_[index], x_dot_[index], theta_[index], theta_dot_[index]});
    return env.Render();
  }

 private:
  // The state is kept as a structure of arrays, the observation as a row.
  void Start(int index, std::uint64_t seed) override {
    const CartPole::State state = CartPole::Start(seed);
    SetState(index, state);
    steps_[index] = 0;
    float* row = observation_.data<float>() + 4 * index;
    for (int i = 0; i < 4; ++i) row[i] = float(state[i]);
  }

  void StepAll(const std::byte* action) override {
    ReadActions(action);
    std::uint8_t* const terminated = terminated_.data<std::uint8_t>();
    std::uint8_t* const truncated = truncated_.data<std::uint8_t>();
    step_({.count = int(action_.size()),
           .x = x_.data(),
           .x_dot = x_dot_.data(),
           .theta = theta_.data(),
           .theta_dot = theta_dot_.data(),
           .action = action_.data(),
           .observation = observation_.data<float>(),
           .terminated = terminated});
    for (int i = size_; i < int(action_.size()); ++i) SetState(i, {});
    std::ranges::fill(reward_.as<float>(), 1.0f);
    // Most steps end no episode: one pass finds out, and a second one runs only if needed.
    std::uint8_t any = 0;
    for (int i = 0; i < size_; ++i) {
      truncated[i] = ++steps_[i] == spec_.max_episode_steps;
      any |= terminated[i] | truncated[i];
    }
    if (any == 0) return;
    for (int i = 0; i < size_; ++i) {
      if (terminated[i] | truncated[i]) EndEpisode(i);
    }
  }

  void ReadActions(const std::byte* action) {
    std::memcpy(action_.data(), action, size_ * sizeof(std::int32_t));
    // One check for all actions: an OR of the values, as negative ones have high bits.
    std::uint32_t all = 0;
    for (const std::int32_t a : action_) all |= std::uint32_t(a);
    TROOP_CHECK(all <= 1, "an action is outside [0, 2)");
  }

  void SetState(int index, const CartPole::State& state) {
    x_[index] = state[0];
    x_dot_[index] = state[1];
    theta_[index] = state[2];
    theta_dot_[index] = state[3];
  }

  std::vector<std::int32_t> action_;
  std::vector<double> x_, x_dot_, theta_, theta_dot_;
  std::vector<std::int64_t> steps_;  // of the current episode, for the step limit
  const cartpole::StepFunction step_;
};

}  // namespace

std::unique_ptr<VectorEnv> MakeCartPoleVectorEnv(std::int64_t max_episode_steps, int size,
                                                 EpisodeSeeder seeder) {
  return std::make_unique<CartPoleVectorEnv>(max_episode_steps, size, std::move(seeder));
}

}  // namespace troop
