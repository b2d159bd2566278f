#pragma once

#include <memory>

#include "envs/vector_env.h"

namespace troop {

// Wrappers that apply to a vector of any environments.
struct VectorWrappers {
  // Probability that an environment repeats its previous action instead of the given one (Machado
  // et al. 2018, sec. 5); never at an episode's first step. The random choice depends on the
  // episode's seed alone.
  double sticky_actions = 0;
  double reward_scale = 1;  // factor of all rewards
  // Bound of the elements of f32 observations, which are clipped to ± this value; 0: none. NaN and
  // infinite elements stay, so that they are reported as faults of the environment.
  double observation_clip = 0;
  bool any() const { return sticky_actions > 0 || reward_scale != 1 || observation_clip > 0; }
};

// Checks that observations of this environment can be clipped. Errors: kInvalidArgument, if
// `wrappers` clips observations of another type than f32.
Status CheckClip(const VectorWrappers& wrappers, const EnvSpec& spec);

// True if step `step` (from 0) of the episode with this seed repeats the previous action.
bool ActionSticks(std::uint64_t episode_seed, std::uint64_t step, double probability);

// Returns the environment, wrapped if `wrappers` has anything to apply: the same bytes as a wrapped
// vector whose environments have the same seeds. REQUIRES: CheckClip.
std::unique_ptr<Environment> MakeWrappedEnvironment(const VectorWrappers& wrappers,
                                                    std::unique_ptr<Environment> env);

// Creates the inner vector with the given seeder.
using MakeInnerVectorEnv = std::function<Result<std::unique_ptr<VectorEnv>>(EpisodeSeeder)>;

// Returns the vector that `make` creates, wrapped if `wrappers` has anything to apply, else as it
// is. Errors: those of `make` and CheckClip.
Result<std::unique_ptr<VectorEnv>> MakeWrappedVectorEnv(const VectorWrappers& wrappers, int size,
                                                        EpisodeSeeder seeder,
                                                        const MakeInnerVectorEnv& make);

}  // namespace troop
