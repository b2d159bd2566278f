#pragma once

#include <memory>

#include "envs/vector_env.h"

namespace troop {

// What may lie around a vector of any environments.
struct VectorWrappers {
  // With this probability an environment repeats its last action in place of the one that it is
  // given (Machado et al. 2018, sec. 5); never at an episode's first step. The chance comes from
  // the episode's seed alone.
  double sticky_actions = 0;
  double reward_scale = 1;  // rewards are multiplied by it
  bool any() const { return sticky_actions > 0 || reward_scale != 1; }
};

// Makes the vector inside, with the seeder that it is given.
using MakeInnerVectorEnv = std::function<Result<std::unique_ptr<VectorEnv>>(EpisodeSeeder)>;

// The vector that `make` gives, wrapped; as it is where there is nothing to wrap. Errors: make's.
Result<std::unique_ptr<VectorEnv>> MakeWrappedVectorEnv(const VectorWrappers& wrappers, int size,
                                                        EpisodeSeeder seeder,
                                                        const MakeInnerVectorEnv& make);

}  // namespace troop
