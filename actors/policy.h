#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/config.h"
#include "core/spec.h"
#include "core/tensor.h"

namespace troop {

// Decides how one environment's next action explores, and by which random stream: by what it is
// for, never by who computes it.
struct ExploreKey {
  std::uint64_t env = 0;  // global environment index
  std::uint64_t episode = 0;
  std::uint64_t step = 0;  // within the episode
  double epsilon = 0;      // probability of a uniformly random action
  double noise_sigma = 0;  // continuous actions: of normal noise, in halves of their range
};

struct PolicyOutput {
  ConstTensor action;         // [N, ...action]
  ConstTensor q;              // [N, K] f32: of every action; of continuous ones {q_taken, q_max}
  ConstTensor q_taken;        // [N] f32: q(s, action)
  ConstTensor q_max;          // [N] f32: max_a q(s, a), or q(s, μ(s)) of continuous actions
  std::uint64_t version = 0;  // of the weights that decided
};

// Chooses actions. A local forward and batched inference on a server are one interface.
class Policy {
 public:
  virtual ~Policy() = default;
  // observation: [N, ...NetworkInput]; keys: [N], as many as it was made for or fewer. REQUIRES:
  // the output before was polled.
  virtual void Submit(ConstTensor observation, std::span<const ExploreKey> keys) = 0;
  // The output, once; nullptr: not ready. Valid until the next Submit.
  virtual const PolicyOutput* Poll() = 0;
  // value: [P]. Refused (kInvalidArgument) when the size is wrong.
  virtual Status SetWeights(std::uint64_t version, std::span<const float> value) = 0;
};

// What is chosen for n observations.
struct Choice {
  std::span<std::int32_t> action;   // [n]
  std::span<float> q_taken, q_max;  // [n]
};
// ε-greedy over q [n, A]; ties go to the lowest action. seed: the run's.
void ChooseActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& q,
                   const Choice& choice);

// What the config's network chooses; the forward runs inside Submit. Discrete actions:
// ChooseActions of its q. Continuous ones: its policy's action with normal noise,
// cut off at the bounds. Errors: the network can't be made.
Result<std::unique_ptr<Policy>> MakeLocalPolicy(const Config& config, const EnvSpec& env, int size);
// The same where inference.device says. Errors: kUnavailable: no GPU, though it is asked for.
Result<std::unique_ptr<Policy>> MakeServerPolicy(const Config& config, const EnvSpec& env,
                                                 int size);
// The second kind. REQUIRES: continuous actions.
Result<std::unique_ptr<Policy>> MakeContinuousPolicy(const Config& config, const EnvSpec& env,
                                                     int size);
// Refuses (kInvalidArgument) weights for another network.
Status CheckWeightCount(std::size_t given, std::size_t wanted);

// ε of Ape-X (Horgan et al. 2018, sec. 4.1): ε_i = base^(1 + α·i/(N−1)); N = 1: base. σ of
// continuous actions is made alike; α = 0, the same for all, is the paper's (appendix D).
double ExplorationEpsilon(double base, double alpha, std::uint64_t index, std::uint64_t count);
// ε of Gorila (Nair et al. 2015, sec. 5), after so many of the fleet's steps: 1 while it warms up,
// then actor.epsilon_from to actor.epsilon_to over actor.epsilon_steps, then the last.
// REQUIRES: epsilon_steps > 0.
double AnnealedEpsilon(const Config::ActorKeys& keys, std::int64_t steps_done);

}  // namespace troop
