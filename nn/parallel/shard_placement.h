#pragma once

#include <algorithm>
#include <cstdint>

namespace troop {

// Position of a rank in a tensor-parallel group (nn/parallel/tensor_parallel.h).
struct TensorParallelRank {
  int rank = 0, ranks = 1;
  bool operator==(const TensorParallelRank&) const = default;
};

// A rank's share of n items: as equal as possible, with one more for the first n % ranks ranks.
// REQUIRES: 0 <= rank < ranks.
struct Share {
  std::int64_t first = 0, count = 0;
};
inline Share ShareOf(std::int64_t n, const TensorParallelRank& place) {
  const std::int64_t least = n / place.ranks, more = n % place.ranks;
  return {place.rank * least + std::min<std::int64_t>(place.rank, more),
          least + (place.rank < more ? 1 : 0)};
}

}  // namespace troop
