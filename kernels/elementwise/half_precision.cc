// Selection of the 16-bit conversion kernels for an instruction set.
#include "kernels/elementwise/half_precision.h"

namespace troop {

// Each is compiled from one template with the flags of its instruction set.
namespace plain {
extern const HalfKernels kHalfKernels;
}
namespace avx2 {
extern const HalfKernels kHalfKernels;
}
namespace avx512 {
extern const HalfKernels kHalfKernels;
}

const HalfKernels& HalfKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kHalfKernels;
  return level == CpuLevel::kAvx2 ? avx2::kHalfKernels : plain::kHalfKernels;
}

}  // namespace troop
