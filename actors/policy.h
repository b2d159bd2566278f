#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/acting_config.h"
#include "core/tensor/spec.h"
#include "core/tensor/tensor.h"
#include "nn/models/actor_critic_network.h"

namespace troop {

// Exploration parameters and random-stream key of one environment's next action. The key identifies
// the action, not the process that computes it, so the result is the same everywhere.
struct ExploreKey {
  std::uint64_t env = 0;  // global environment index
  std::uint64_t episode = 0;
  std::uint64_t step = 0;  // within the episode
  double epsilon = 0;      // probability of a uniformly random action
  // Continuous actions: standard deviation of the normal noise, in half ranges; of a stochastic
  // policy (SAC, actor-critics) in its own standard deviations: 1 samples from it, 0 takes its
  // mode. Discrete actions: above 0 samples. Noisy networks: above 0 draws their noise.
  double noise_sigma = 0;
};

// Actions of N environments with their q-values. The tensors belong to the policy.
struct PolicyOutput {
  ConstTensor action;         // [N, ...action]
  ConstTensor q;              // [N, K] f32: of each action; continuous: {q_taken, q_max};
                              // actor-critic: those of its network (ActorCriticColumns)
  ConstTensor q_taken;        // [N] f32: q(s, action); actor-critic: V(s)
  ConstTensor q_max;          // [N] f32: max_a q(s, a); continuous: q(s, μ(s)); actor-critic: V(s)
  std::uint64_t version = 0;  // of the weights used
  ConstTensor state = {};     // [N, S] f32: recurrent state before the step; empty without one
};

// K, the columns of PolicyOutput::q.
inline std::int64_t ColumnsOfQ(AlgorithmKind algorithm, const ActionSpec& action) {
  if (IsActorCritic(algorithm)) return ActorCriticColumns(action);
  return action.discrete() ? action.count : 2;
}

// Chooses actions. Local forward passes and batched inference on a server share this interface.
class Policy {
 public:
  virtual ~Policy() = default;
  // Starts the choice of actions. observation: [N, ...NetworkInput]; keys: [N]; N is at most the
  // size it was made for. A recurrent policy continues each row from the state after the call
  // before, and from zeros where key.step is 0. A noisy network has the same noise for all rows of
  // a call, which the first key selects. REQUIRES: the previous output was polled.
  virtual void Submit(ConstTensor observation, std::span<const ExploreKey> keys) = 0;
  // The output, once; nullptr: not ready. Valid until the next Submit.
  virtual const PolicyOutput* Poll() = 0;
  // Replaces the weights. value: [P]. Errors: kInvalidArgument: wrong size.
  virtual Status SetWeights(std::uint64_t version, std::span<const float> value) = 0;
};

// Output buffers for n observations.
struct Choice {
  std::span<std::int32_t> action;   // [n]
  std::span<float> q_taken, q_max;  // [n]
};
// ε-greedy over q [n, A]; ties go to the lowest action. seed: the run's.
void ChooseActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& q,
                   const Choice& choice);

// Samples the softmax of the logits, or takes the largest: out [n, A + 1] of an actor-critic. With
// key.epsilon the action is uniformly random. Ties go to the lowest action. seed: the run's.
// action: [n].
void SampleActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& out,
                   std::span<std::int32_t> action);
// log μ(action) of that choice, with its exploration: row [A + 1].
float LogProbability(const ExploreKey& key, std::span<const float> row, std::int32_t action);

// The action at which the cumulated probability of the softmax of the logits exceeds u in [0, 1).
std::int32_t SampleSoftmax(std::span<const float> logits, double u);

// Both for continuous actions: samples of Gaussians that are clipped to the bounds, or their means;
// out [n, 2A + 1], action [n, A]. NaN gives the lower bound. Components that are integers are
// sampled from the softmax of their logits, out [n, Σ choices + 1].
void SampleActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& out,
                   const ActionSpec& spec, std::span<float> action);
float LogProbability(const ExploreKey& key, std::span<const float> row, const ActionSpec& spec,
                     std::span<const float> action);

// A policy with the config's network; the forward pass runs inside Submit. Actor-critics:
// SampleActions of its output. Other discrete actions: ChooseActions of its q. Other continuous
// actions: the network's action plus normal noise, clipped to the bounds; SAC: a sample of the
// network's distribution. Errors: the network cannot be made.
Result<std::unique_ptr<Policy>> MakeLocalPolicy(const ActingConfig& config, const EnvSpec& env,
                                                int size);
// A local policy on the device that inference.device selects. Errors: kUnavailable: a GPU is
// requested, but none can be used.
Result<std::unique_ptr<Policy>> MakeServerPolicy(const ActingConfig& config, const EnvSpec& env,
                                                 int size);
// The local policy of dpg, td3 and sac. REQUIRES: continuous actions.
Result<std::unique_ptr<Policy>> MakeContinuousPolicy(const ActingConfig& config, const EnvSpec& env,
                                                     int size);
// Errors: kInvalidArgument: the weights belong to another network.
Status CheckWeightCount(std::size_t given, std::size_t wanted);

}  // namespace troop
