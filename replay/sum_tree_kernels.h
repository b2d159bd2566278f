#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"

namespace troop {

inline constexpr int kSumTreeLevelsMax = 8;  // 16^8 = 2^32 slots

// The two loops of a sum tree, for one instruction set each. All give the same bits.
//   level: pointers to the levels' values, level[0] the leaves; level[levels - 1] holds one node.
struct SumTreeKernels {
  const char* name;
  // Descends for n masses: slot[i] and its leaf's value. REQUIRES: some leaf is positive.
  void (*find)(const float* const* level, int levels, const double* mass, std::size_t n,
               std::uint32_t* slot, float* value);
  // sum[i] = the sum of the 16 values at values + 16 * node[i], added pairwise.
  void (*sum)(const float* values, const std::uint32_t* node, std::size_t n, float* parents);
};

const SumTreeKernels& SumTreeKernelsFor(CpuLevel level);

extern const SumTreeKernels kSumTreePlain, kSumTreeAvx2, kSumTreeAvx512;

}  // namespace troop
