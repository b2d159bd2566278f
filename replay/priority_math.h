#pragma once

#include <span>

#include "core/rng.h"
#include "replay/priority_math_kernels.h"

namespace troop {

// The arithmetic of prioritized replay (Schaul et al. 2016) for a batch at a time. Powers are
// computed in f64 and rounded once: within 1 unit in the last place of the exact f32. All
// instruction sets give the same bits. O(n); inputs and outputs may not overlap.
//
// `kernels` is for tests and benchmarks; the others leave it to the processor.

// What a tree holds: value[i] = priority[i]^alpha, brought into [FLT_MIN, SumTree::kPriorityMax],
// so that the tiny can still be drawn and the huge still be added up. alpha >= 0: 0 stays 0, which
// is never drawn. alpha < 0 (what leaves first; Horgan et al. 2018, appendix D): 0 counts as the
// smallest positive f32. REQUIRES: equal sizes; priorities finite and >= 0; |alpha| <= 16.
void PowerPriorities(std::span<const float> priority, double alpha, std::span<float> value,
                     const PriorityMathKernels& kernels = BestPriorityMathKernels());

// weight[i] = (probability_min / probability[i])^beta: the importance weight of the item, divided
// by the largest of all items. At most 1 where probability_min is their minimum. REQUIRES: equal
// sizes; probabilities positive, finite and normal f64; 0 <= beta <= 16.
void ImportanceWeights(std::span<const double> probability, double probability_min, double beta,
                       std::span<float> weight,
                       const PriorityMathKernels& kernels = BestPriorityMathKernels());

// One mass out of each of mass.size() equal parts of [0, total), in order: mass[i] =
// (i + u) * (total / n) with u = rng->Uniform(), the same numbers that it gives one by one.
void StratifiedMasses(double total, Rng* rng, std::span<double> mass,
                      const PriorityMathKernels& kernels = BestPriorityMathKernels());

}  // namespace troop
