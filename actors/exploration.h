#pragma once

#include <cstdint>

#include "actors/actor_config.h"

namespace troop {

// ε of Ape-X (Horgan et al. 2018, sec. 4.1): ε_i = base^(1 + α·i/(N−1)); N = 1: base. σ of
// continuous actions uses the same formula; α = 0, equal for all, is the paper's choice (appendix
// D).
double ExplorationEpsilon(double base, double alpha, std::uint64_t index, std::uint64_t count);
// ε of Gorila (Nair et al. 2015, sec. 5) after that many of the fleet's steps: 1 during warmup,
// then linear from actor.epsilon_initial to actor.epsilon_final over actor.epsilon_steps, then
// constant. REQUIRES: epsilon_steps > 0.
double AnnealedEpsilon(const ActorConfig& keys, std::int64_t steps_done);

}  // namespace troop
