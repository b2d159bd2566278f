// An algorithm that Troop does not have: Munchausen DQN (Vieillard et al. 2020, arXiv:2007.14430).
#pragma once

#include "learners/external/own_algorithm.h"

// With the policy π = softmax(q / τ) of the target network, the target of a step is
//   r + α [τ ln π(a|s)] clipped to [l0, 0] + γ Σ_a' π(a'|s') (q(s', a') - τ ln π(a'|s')).
// Options: temperature τ (0.03), munchausen α (0.9), clip l0 (-1). Other settings are those of
// Troop's DQN: learner.gamma, learner.loss, the target network, the optimizer. One-step: needs
// actor.n_step = 1. Supports several learners, parameter shards and Hogwild threads.
troop::Result<std::unique_ptr<troop::Algorithm>> MakeMunchausenDqn(
    troop::OwnAlgorithmRequest request);
