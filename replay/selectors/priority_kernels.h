#pragma once

#include <span>

#include "core/base/philox.h"
#include "replay/selectors/priority_kernels_table.h"

namespace troop {

// Arithmetic of prioritized replay (Schaul et al. 2016), in batches. Powers are computed in f64
// and rounded once: within 1 unit in the last place of the exact f32. All instruction sets give
// identical bits. O(n); inputs and outputs must not overlap.
//
// `kernels` is for tests and benchmarks; by default the best for this processor are used.

// Weights of a sum tree: value[i] = priority[i]^alpha, clamped to [FLT_MIN,
// SumTree::kPriorityMax], so that tiny ones can still be sampled and huge ones can still be added
// up. alpha >= 0: 0 stays 0, which is never sampled. alpha < 0 (eviction; Horgan et al. 2018,
// appendix D): 0 counts as the smallest positive f32. REQUIRES: equal sizes; priorities finite and
// >= 0; |alpha| <= 16.
void PowerPriorities(std::span<const float> priority, double alpha, std::span<float> value,
                     const PriorityKernels& kernels = BestPriorityKernels());

// Importance weights, normalized by the largest of all items: weight[i] = (probability_min /
// probability[i])^beta. At most 1 if probability_min is the minimum over all items. REQUIRES:
// equal sizes; probabilities positive, finite and normal f64; 0 <= beta <= 16.
void ImportanceWeights(std::span<const double> probability, double probability_min, double beta,
                       std::span<float> weight,
                       const PriorityKernels& kernels = BestPriorityKernels());

// Samples one mass from each of n = mass.size() equal parts of [0, total), in order: mass[i] =
// (i + u) * (total / n), with the values u and the final position of n calls of rng->Uniform().
void StratifiedMasses(double total, Rng* rng, std::span<double> mass,
                      const PriorityKernels& kernels = BestPriorityKernels());

}  // namespace troop
