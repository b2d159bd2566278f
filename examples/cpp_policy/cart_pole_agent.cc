// Plays ten episodes of CartPole with the policy in a file of `troop export`: cart_pole_agent FILE.
#include <troop_policy.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

// An exported policy with one stream of observations. Errors are exceptions.
class Agent {
 public:
  explicit Agent(const std::string& path) {
    char message[256] = "";
    troop_policy_source source{};
    source.size = sizeof source;
    source.abi = TROOP_POLICY_ABI;
    source.path = path.c_str();
    source.message = message;
    source.message_bytes = sizeof message;
    troop_policy* loaded = nullptr;
    if (troop_policy_load(&source, &loaded) != TROOP_POLICY_OK) throw std::runtime_error(message);
    policy_.reset(loaded);
    // It must be one for CartPole: 4 numbers in, 2 actions out.
    const troop_policy_observation& observation = *troop_policy_observation_at(loaded, 0);
    const troop_policy_action& action = *troop_policy_action_at(loaded, 0);
    if (observation.dtype != TROOP_POLICY_F32 || observation.bytes != 16 ||
        action.kind != TROOP_POLICY_DISCRETE || action.count != 2) {
      throw std::runtime_error(path + ": not a policy for CartPole");
    }
    troop_policy_session* session = nullptr;
    if (troop_policy_session_create(loaded, 1, &session) != TROOP_POLICY_OK) throw std::bad_alloc();
    session_.reset(session);
  }

  // The next observation begins an episode.
  void Reset() { troop_policy_reset(session_.get(), -1); }

  // Allocates nothing, and may be called from a control loop.
  std::int32_t Act(const std::array<float, 4>& observation) {
    std::int32_t action = 0;
    const void* const observations[] = {observation.data()};
    void* const actions[] = {&action};
    troop_policy_call call{};
    call.size = sizeof call;
    call.count = 1;
    call.observations = observations;
    call.actions = actions;
    if (troop_policy_act(session_.get(), &call) != TROOP_POLICY_OK)
      throw std::runtime_error(troop_policy_session_message(session_.get()));
    return action;
  }

 private:
  struct Unload {
    void operator()(troop_policy* policy) const { troop_policy_unload(policy); }
    void operator()(troop_policy_session* session) const { troop_policy_session_destroy(session); }
  };
  std::unique_ptr<troop_policy, Unload> policy_;
  std::unique_ptr<troop_policy_session, Unload> session_;  // destroyed first
};

// The cart and its pole.
class Pole {
 public:
  // A start in ±0.05 for each element, from a linear congruential generator (Knuth's constants).
  explicit Pole(std::uint64_t* seed) {
    for (double* const element : {&x_, &v_, &angle_, &turn_}) {
      *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
      *element = 0.1 * (double(*seed >> 40) / (1 << 24)) - 0.05;
    }
  }
  std::array<float, 4> Observation() const {
    return {float(x_), float(v_), float(angle_), float(turn_)};
  }
  bool Fallen() const { return std::abs(x_) > 2.4 || std::abs(angle_) > 0.2095; }

  // One step of 20 ms (Florian 2007); the action pushes the cart to the left (0) or right (1).
  void Advance(std::int32_t action) {
    const double force = action == 1 ? 10 : -10, s = std::sin(angle_), c = std::cos(angle_);
    const double push = (force + 0.05 * turn_ * turn_ * s) / 1.1;
    const double turning = (9.8 * s - c * push) / (0.5 * (4.0 / 3 - 0.1 * c * c / 1.1));
    const double moving = push - 0.05 * turning * c / 1.1;
    x_ += 0.02 * v_;
    v_ += 0.02 * moving;
    angle_ += 0.02 * turn_;
    turn_ += 0.02 * turning;
  }

 private:
  double x_ = 0, v_ = 0, angle_ = 0, turn_ = 0;
};

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: cart_pole_agent FILE\n";
    return 2;
  }
  Agent agent(arguments[1]);
  std::uint64_t seed = 1;
  for (int episode = 0; episode < 10; ++episode) {
    Pole pole(&seed);
    agent.Reset();
    int steps = 0;
    for (; steps < 500 && !pole.Fallen(); ++steps) pole.Advance(agent.Act(pole.Observation()));
    std::cout << steps << "\n";
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
