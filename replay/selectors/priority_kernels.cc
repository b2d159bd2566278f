// Prioritized-replay arithmetic: argument checks and the choice of kernels.
#include "replay/selectors/priority_kernels.h"

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "kernels/simd/cpu_features.h"
#include "replay/selectors/sum_tree.h"

namespace troop {
namespace {
constexpr double kExponentMax = 16;
}

const PriorityKernels& PriorityKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kPriorityKernels;
  if (level >= CpuLevel::kAvx2) return avx2::kPriorityKernels;
  return plain::kPriorityKernels;
}

const PriorityKernels& BestPriorityKernels() { return PriorityKernelsFor(BestCpuLevel()); }

// The kernels validate while computing; a bad value fails the check afterwards.
void PowerPriorities(std::span<const float> priority, double alpha, std::span<float> value,
                     const PriorityKernels& kernels) {
  TROOP_CHECK(priority.size() == value.size(), "{} priorities, {} values", priority.size(),
              value.size());
  TROOP_CHECK(std::abs(alpha) <= kExponentMax, "alpha {}", alpha);
  // A negative exponent needs a positive floor: 0^alpha would be infinite.
  const float floor = alpha < 0 ? std::numeric_limits<float>::denorm_min() : 0.0f;
  const bool good = kernels.powers(priority.data(), priority.size(), alpha, floor, FLT_MIN,
                                   SumTree::kPriorityMax, value.data());
  TROOP_CHECK(good, "a priority is negative or not finite");
}

void ImportanceWeights(std::span<const double> probability, double probability_min, double beta,
                       std::span<float> weight, const PriorityKernels& kernels) {
  TROOP_CHECK(probability.size() == weight.size(), "{} probabilities, {} weights",
              probability.size(), weight.size());
  TROOP_CHECK(beta >= 0 && beta <= kExponentMax, "beta {}", beta);
  TROOP_CHECK(probability_min >= DBL_MIN && probability_min <= DBL_MAX, "least probability {}",
              probability_min);
  const bool good =
      kernels.weights(probability.data(), probability.size(), probability_min, beta, weight.data());
  TROOP_CHECK(good, "a probability is not positive or not finite");
}

void StratifiedMasses(double total, Rng* rng, std::span<double> mass,
                      const PriorityKernels& kernels) {
  if (mass.empty()) return;
  // Width of a stratum.
  const double step = total / double(mass.size());
  std::size_t first = 0;
  // Advance to the stream's next block of four numbers, where the kernel begins. An odd position
  // never reaches one.
  const bool odd = rng->position() % 2 != 0;
  for (; first < mass.size() && (odd || rng->position() % 4 != 0); ++first) {
    mass[first] = (double(first) + rng->Uniform()) * step;
  }
  const std::size_t rest = mass.size() - first;
  if (rest == 0) return;
  kernels.masses(rng->key().data(), rng->stream().data(), rng->position() / 4, double(first), step,
                 rest, mass.data() + first);
  rng->Seek(rng->position() + 2 * rest);
}

}  // namespace troop
