#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace troop {

// Shared code of the 16-ary trees of replay/: their shape, and batched updates, which store leaves
// and recompute the nodes above level by level.

inline constexpr std::int64_t kTreeArity = 16;

// Nodes per level for this number of leaves, the leaves' nodes first; the last level has one.
inline std::vector<std::int64_t> TreeNodes(std::int64_t leaves) {
  std::vector<std::int64_t> nodes;
  for (std::int64_t values = leaves;; values = nodes.back()) {
    nodes.push_back((values + kTreeArity - 1) / kTreeArity);
    if (nodes.back() == 1) return nodes;
  }
}

// Node numbers of the current level. A block is the maximum number of leaves that are stored
// before the upper levels are recomputed.
inline constexpr std::size_t kTreeBlock = 512;
using TouchedNodes = std::array<std::uint32_t, kTreeBlock>;

// Recomputes the levels above the leaves' nodes touched[0, count), by renew(level, node, count). A
// level with no more nodes than were touched below it is recomputed as a whole. Only adjacent
// duplicates are removed: others are rare or cheap, and finding them costs more than doing the
// work twice.
template <class Renew>
void RenewAbove(std::span<const std::uint32_t> level_nodes, std::size_t count,
                TouchedNodes* touched, const Renew& renew) {
  std::uint32_t* const node = touched->data();
  for (std::size_t level = 1; level < level_nodes.size(); ++level) {
    std::size_t parents = 0;
    if (level_nodes[level] <= count) {
      parents = level_nodes[level];
      std::iota(node, node + parents, 0u);
    } else {
      std::uint32_t last = ~0u;
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t parent = node[i] / std::uint32_t(kTreeArity);
        node[parents] = parent;
        parents += parent != last;
        last = parent;
      }
    }
    renew(level, node, parents);
    count = parents;
  }
}

// Stores leaf[slot[i]] = value(i) and recomputes the nodes above. `parent`: level 1, prefetched. A
// software pipeline of steps: store one step's values, while the cache lines of the next step are
// being loaded, and recompute the nodes of the previous step, whose stores have left the store
// buffer (a load right after narrower stores to its line stalls). REQUIRES: slot.size() <=
// kTreeBlock.
template <class T, class Value, class Renew>
void SetLeaves(std::span<const std::uint32_t> slot, T* leaf, T* parent,
               std::span<const std::uint32_t> level_nodes, TouchedNodes* touched,
               const Value& value, const Renew& renew) {
  constexpr std::size_t kStep = 32;
  const std::size_t count = slot.size();
  std::uint32_t* const node = touched->data();
  for (std::size_t i = 0; i < std::min(kStep, count); ++i) __builtin_prefetch(leaf + slot[i], 1);
  std::size_t listed = 0, stored = 0, renewed = 0;
  for (std::size_t first = 0; first < count; first += kStep) {
    const std::size_t end = std::min(first + kStep, count), ahead = std::min(end + kStep, count);
    for (std::size_t i = end; i < ahead; ++i) __builtin_prefetch(leaf + slot[i], 1);
    std::uint32_t last = ~0u;  // no node: each step lists all nodes that it stores to
    for (std::size_t i = first; i < end; ++i) {
      leaf[slot[i]] = value(i);
      const std::uint32_t at = slot[i] / std::uint32_t(kTreeArity);
      __builtin_prefetch(parent + at, 1);
      node[listed] = at;
      listed += at != last;
      last = at;
    }
    renew(std::size_t{0}, node + renewed, stored - renewed);
    renewed = stored;
    stored = listed;
  }
  renew(std::size_t{0}, node + renewed, listed - renewed);
  RenewAbove(level_nodes, listed, touched, renew);
}

}  // namespace troop
