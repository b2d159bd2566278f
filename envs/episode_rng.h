#pragma once

#include "core/base/philox.h"

namespace troop {

// Random stream for everything random in the episode with this seed.
inline Rng EpisodeRng(std::uint64_t seed) {
  return Rng({.run_seed = seed, .purpose = Purpose::kEnvironment});
}

}  // namespace troop
