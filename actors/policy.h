#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/config.h"
#include "core/spec.h"
#include "core/tensor.h"

namespace troop {

// Decides ε and the random stream of one environment's next action: by what it is for, never by who
// computes it.
struct ExploreKey {
  std::uint64_t env = 0;  // global environment index
  std::uint64_t episode = 0;
  std::uint64_t step = 0;  // within the episode
  double epsilon = 0;
};

struct PolicyOutput {
  ConstTensor action;         // [N, ...action]
  ConstTensor q;              // [N, A] f32
  std::uint64_t version = 0;  // of the weights that decided
};

// Chooses actions. A local forward and batched inference on a server are one interface.
class Policy {
 public:
  virtual ~Policy() = default;
  // observation: [N, ...NetworkInput]; keys: [N]. REQUIRES: the output before was polled.
  virtual void Submit(ConstTensor observation, std::span<const ExploreKey> keys) = 0;
  // The output, once; nullptr: not ready. Valid until the next Submit.
  virtual const PolicyOutput* Poll() = 0;
  // value: [P]. Refused (kInvalidArgument) when the size is wrong.
  virtual Status SetWeights(std::uint64_t version, std::span<const float> value) = 0;
};

// ε-greedy over the network's q; the forward runs inside Submit. Ties go to the lowest action.
Result<std::unique_ptr<Policy>> MakeLocalPolicy(const Config& config, const EnvSpec& env, int size);

// ε of Ape-X (Horgan et al. 2018, sec. 4.1): ε_i = base^(1 + α·i/(N−1)); N = 1: base.
double ExplorationEpsilon(double base, double alpha, std::uint64_t index, std::uint64_t count);

}  // namespace troop
