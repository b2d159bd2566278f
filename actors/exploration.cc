// Implements the exploration rates of Ape-X and Gorila.

#include "actors/exploration.h"

#include <algorithm>
#include <cmath>

namespace troop {

// A single environment has the base rate, since there is nothing to spread it over.
double ExplorationEpsilon(double base, double alpha, std::uint64_t index, std::uint64_t count) {
  if (count <= 1) return base;
  return std::pow(base, 1 + alpha * double(index) / double(count - 1));
}

// Steps before the end of the warm-up are all random, and the annealing begins after them.
double AnnealedEpsilon(const ActorConfig& keys, std::int64_t steps_done) {
  const double steps = double(steps_done) - keys.warmup_steps;
  if (steps < 0) return 1;
  return std::lerp(keys.epsilon_initial, keys.epsilon_final,
                   std::min(1.0, steps / keys.epsilon_steps));
}

}  // namespace troop
