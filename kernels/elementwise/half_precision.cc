// Selection of the 16-bit conversion kernels for an instruction set.
#include "kernels/elementwise/half_precision.h"

namespace troop {

namespace halves_plain {
extern const HalfKernels kKernels;
}
namespace halves_avx2 {
extern const HalfKernels kKernels;
}
namespace halves_avx512 {
extern const HalfKernels kKernels;
}

const HalfKernels& HalfKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return halves_avx512::kKernels;
  return level == CpuLevel::kAvx2 ? halves_avx2::kKernels : halves_plain::kKernels;
}

}  // namespace troop
