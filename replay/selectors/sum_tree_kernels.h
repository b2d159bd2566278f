#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

inline constexpr int kSumTreeLevelsMax = 8;  // 16^8 = 2^32 slots
inline constexpr int kSumTreeBorderLevel = 2;

// Memory layout of a sum tree. Level 0 holds the leaves, level l > 0 the sums of the nodes of
// level l - 1; the last level has one node.
//   value[l]: 16 children of each node, 64 bytes, aligned.
//   border[l], l >= kSumTreeBorderLevel: for each child the sum of its predecessors in the node, or
//     +inf if the child's value is 0. The child that a mass falls into is the last one whose border
//     is not above the mass: a comparison and a count instead of a prefix sum. The two lowest
//     levels have none: one more line to write costs an update more than it saves a descent (at 16M
//     slots 26 ns instead of 19.5; 1 ns was saved).
struct SumTreeLevels {
  int count = 0;
  std::uint32_t nodes[kSumTreeLevelsMax] = {};
  float* value[kSumTreeLevelsMax] = {};
  float* border[kSumTreeLevelsMax] = {};
};

// Loops of a sum tree for one instruction set. All sets give identical bits.
struct SumTreeKernels {
  const char* name;
  // Descends for n masses; writes slot[i] and its leaf's value. REQUIRES: some leaf is positive.
  void (*find)(const SumTreeLevels& levels, const double* mass, std::size_t n, std::uint32_t* slot,
               float* value);
  // True if slot[i] < slots and 0 <= priority[i] <= priority_max (so not NaN) for all n.
  bool (*valid)(const std::uint32_t* slot, const float* priority, std::size_t n,
                std::uint32_t slots, float priority_max);
  // parent[node[i]] = the sum of that node's 16 values, added pairwise. If `border` is not null,
  // it is the level's border array, and the node's borders are written too.
  void (*sum)(const float* value, float* border, const std::uint32_t* node, std::size_t n,
              float* parent);
};

const SumTreeKernels& SumTreeKernelsFor(CpuLevel level);

extern const SumTreeKernels kSumTreePlain, kSumTreeAvx2, kSumTreeAvx512;

}  // namespace troop
