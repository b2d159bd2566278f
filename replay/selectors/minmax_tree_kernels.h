#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// The loop of an extreme tree for one instruction set. All sets give identical bits.
struct MinMaxTreeKernels {
  const char* name;
  // parent[node[i]] = the greatest of that node's 16 keys.
  void (*greatest)(const std::uint32_t* key, const std::uint32_t* node, std::size_t n,
                   std::uint32_t* parent);
};

const MinMaxTreeKernels& MinMaxTreeKernelsFor(CpuLevel level);

extern const MinMaxTreeKernels kMinMaxTreePlain, kMinMaxTreeAvx2, kMinMaxTreeAvx512;

}  // namespace troop
