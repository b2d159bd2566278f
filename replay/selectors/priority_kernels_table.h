#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Loops of priority_kernels.h for one instruction set. All sets give identical bits.
struct PriorityKernels {
  const char* name;
  // value[i] = p^exponent clamped to [low, high], with p = max(priority[i], floor); 0 if p is 0.
  // Returns false, with meaningless values, if a priority is negative, infinite or NaN.
  bool (*powers)(const float* priority, std::size_t n, double exponent, float floor, float low,
                 float high, float* value);
  // weight[i] = (least / probability[i])^exponent. Returns false, with meaningless weights, if a
  // probability is below DBL_MIN, infinite or NaN.
  bool (*weights)(const double* probability, std::size_t n, double least, double exponent,
                  float* weight);
  // mass[i] = (first + i + u_i) * step, where u_i are the stream's values in [0, 1) from `block`
  // on, two per block.
  void (*masses)(const std::uint32_t* key, const std::uint32_t* stream, std::uint64_t block,
                 double first, double step, std::size_t n, double* mass);
};

const PriorityKernels& PriorityKernelsFor(CpuLevel level);
const PriorityKernels& BestPriorityKernels();

namespace plain {
extern const PriorityKernels kPriorityKernels;
}
namespace avx2 {
extern const PriorityKernels kPriorityKernels;
}
namespace avx512 {
extern const PriorityKernels kPriorityKernels;
}

}  // namespace troop
