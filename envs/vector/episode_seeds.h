#pragma once

#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {

// Seeds of the episodes of N environments that a caller seeds as in Gymnasium: the first episode
// after Seed has the given seed itself, each later one a seed that follows from it and from the
// number of the episode. So the episodes of an environment do not depend on its neighbors. Thread
// safety: calls for different indices may run at the same time.
class EpisodeSeeds {
 public:
  // All environments start with base seed 0.
  explicit EpisodeSeeds(int size) : episodes_(std::size_t(size)) {}

  // Sets the base seed of one environment; its next episode is the first one.
  void Seed(int index, std::uint64_t base) { At(index) = {.base = base}; }
  // Returns the seed of the next episode; fits EpisodeSeeder.
  std::uint64_t Next(int index) {
    Episodes& e = At(index);
    const std::uint64_t number = e.count++;
    if (number == 0) return e.base;
    // Streams of episode 0 belong to the environments themselves (EpisodeRng), so none is shared.
    return DeriveSeed({.run_seed = e.base, .purpose = Purpose::kEnvironment, .episode = number});
  }

 private:
  struct Episodes {
    std::uint64_t base = 0;
    std::uint64_t count = 0;  // number of seeds that Next has returned
  };
  Episodes& At(int index) {
    TROOP_CHECK(index >= 0 && std::size_t(index) < episodes_.size(), "environment {} of {}", index,
                episodes_.size());
    return episodes_[std::size_t(index)];
  }

  std::vector<Episodes> episodes_;
};

}  // namespace troop
