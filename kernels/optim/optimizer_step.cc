// Selection of the optimizer kernels for an instruction set.
#include "kernels/optim/optimizer_step.h"

namespace troop {

// Each is compiled from one template with the flags of its instruction set.
namespace plain {
extern const OptimizerKernels kOptimizerKernels;
}
namespace avx2 {
extern const OptimizerKernels kOptimizerKernels;
}
namespace avx512 {
extern const OptimizerKernels kOptimizerKernels;
}

const OptimizerKernels& OptimizerKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kOptimizerKernels;
  return level == CpuLevel::kAvx2 ? avx2::kOptimizerKernels : plain::kOptimizerKernels;
}

}  // namespace troop
