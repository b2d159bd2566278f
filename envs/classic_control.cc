#include "envs/classic_control.h"

namespace troop {

Rng EpisodeRng(std::uint64_t seed) {
  return Rng({.run_seed = seed, .purpose = Purpose::kEnvironment});
}

}  // namespace troop
