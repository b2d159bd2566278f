#pragma once

#include "kernels/elementwise/cast.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Function table of the passes in cast.h for one instruction set.
struct ConvertKernels {
  void (*convert_scaled)(const ConvertScaledArgs&);
  void (*relu_forward)(std::int64_t, const void*, void*, DType);
  void (*activation_backward)(const ActivationBackwardArgs&);
};
namespace plain {
extern const ConvertKernels kConvertKernels;
}
namespace avx2 {
extern const ConvertKernels kConvertKernels;
}
namespace avx512 {
extern const ConvertKernels kConvertKernels;
}

// The table of a level; tests compare the levels.
const ConvertKernels& ConvertKernelsFor(CpuLevel level);

}  // namespace troop
