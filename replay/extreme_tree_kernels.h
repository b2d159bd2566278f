#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"

namespace troop {

struct ExtremeTreeKernels {
  const char* name;
  // parent[node[i]] = the greatest of the 16 keys of that node.
  void (*greatest)(const std::uint32_t* key, const std::uint32_t* node, std::size_t n,
                   std::uint32_t* parent);
};

const ExtremeTreeKernels& ExtremeTreeKernelsFor(CpuLevel level);

extern const ExtremeTreeKernels kExtremeTreePlain, kExtremeTreeAvx2, kExtremeTreeAvx512;

}  // namespace troop
