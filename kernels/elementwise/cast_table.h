#pragma once

#include "kernels/elementwise/cast.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Function table of the passes in convert.h for one instruction set.
struct ConvertKernels {
  void (*convert_scaled)(std::int64_t, const void*, DType, float, void*, DType);
  void (*relu_forward)(std::int64_t, const void*, void*, DType);
  void (*activation_backward)(Activation, std::int64_t, const void*, const void*, DType, void*,
                              DType);
};
namespace convert_plain {
extern const ConvertKernels kKernels;
}
namespace convert_avx2 {
extern const ConvertKernels kKernels;
}
namespace convert_avx512 {
extern const ConvertKernels kKernels;
}

// The table of a level; tests compare the levels.
const ConvertKernels& ConvertKernelsFor(CpuLevel level);

}  // namespace troop
