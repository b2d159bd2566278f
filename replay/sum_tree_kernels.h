#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"

namespace troop {

inline constexpr int kSumTreeLevelsMax = 8;  // 16^8 = 2^32 slots
inline constexpr int kSumTreeBorderLevel = 2;

// A sum tree's memory. Level 0 holds the leaves, level l > 0 the sums of the nodes of level l - 1;
// the last level has one node.
//   value[l]: 16 children of each node, 64 bytes, aligned.
//   border[l], l >= kSumTreeBorderLevel: for each child the sum of those before it in its node,
//   +inf
//     where the child's value is 0. So the child that a mass falls into is the last whose border is
//     not above it: a comparison and a count, where sums would have to be added up first. The two
//     lowest levels do without: one line more to write costs an update more than it saves a
//     descent (at 16M slots 26 ns against 19.5; 1 ns was saved).
struct SumTreeLevels {
  int count = 0;
  std::uint32_t nodes[kSumTreeLevelsMax] = {};
  float* value[kSumTreeLevelsMax] = {};
  float* border[kSumTreeLevelsMax] = {};
};

// The loops of a sum tree, for one instruction set each. All give the same bits.
struct SumTreeKernels {
  const char* name;
  // Descends for n masses: slot[i] and its leaf's value. REQUIRES: some leaf is positive.
  void (*find)(const SumTreeLevels& levels, const double* mass, std::size_t n, std::uint32_t* slot,
               float* value);
  // Whether slot[i] < slots and 0 <= priority[i] <= priority_max (so not NaN) for all of n.
  bool (*valid)(const std::uint32_t* slot, const float* priority, std::size_t n,
                std::uint32_t slots, float priority_max);
  // parent[node[i]] = the sum of the 16 values of that node, added pairwise. `border`, if not null,
  // is the level's: the node's borders are written too.
  void (*sum)(const float* value, float* border, const std::uint32_t* node, std::size_t n,
              float* parent);
};

const SumTreeKernels& SumTreeKernelsFor(CpuLevel level);

extern const SumTreeKernels kSumTreePlain, kSumTreeAvx2, kSumTreeAvx512;

}  // namespace troop
