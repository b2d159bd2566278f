// Implements the exploration rates of Ape-X and Gorila.

#include "actors/exploration.h"

#include <algorithm>
#include <cmath>

namespace troop {

double ExplorationEpsilon(double base, double alpha, std::uint64_t index, std::uint64_t count) {
  if (count <= 1) return base;
  return std::pow(base, 1 + alpha * double(index) / double(count - 1));
}

double AnnealedEpsilon(const ActorConfig& keys, std::int64_t steps_done) {
  const double steps = double(steps_done) - keys.warmup_steps;
  if (steps < 0) return 1;
  return std::lerp(keys.epsilon_initial, keys.epsilon_final,
                   std::min(1.0, steps / keys.epsilon_steps));
}

}  // namespace troop
