#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/base/philox.h"
#include "envs/vector_env.h"

namespace troop {

// The seed of an episode of an environment, as actors derive them.
inline std::uint64_t SeedOf(int index, int episode) {
  return DeriveSeed({.run_seed = 3,
                     .purpose = Purpose::kEnvironment,
                     .index = std::uint64_t(index),
                     .episode = std::uint64_t(episode)});
}

// Gives each environment its episodes' seeds in their order.
inline EpisodeSeeder CountingSeeder() {
  auto episodes = std::make_shared<std::map<int, int>>();
  return [episodes](int index) { return SeedOf(index, (*episodes)[index]++); };
}

}  // namespace troop
