// Kernel of MinMaxTree without instruction-set extensions.
#include <algorithm>

#include "replay/selectors/minmax_tree_kernels.h"

namespace troop {
namespace {

// A node is the parent of 16 consecutive keys.
void Greatest(const std::uint32_t* key, const std::uint32_t* node, std::size_t n,
              std::uint32_t* parent) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t* const x = key + std::size_t(node[i]) * 16;
    std::uint32_t best = x[0];
    for (int j = 1; j < 16; ++j) best = std::max(best, x[j]);
    parent[node[i]] = best;
  }
}

}  // namespace

const MinMaxTreeKernels kMinMaxTreePlain{"plain", Greatest};

}  // namespace troop
