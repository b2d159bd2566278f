// Selection of the optimizer kernels for an instruction set.
#include "kernels/optim/optimizer_step.h"

namespace troop {

extern const OptimizerKernels kOptimizerPlain, kOptimizerAvx2, kOptimizerAvx512;

const OptimizerKernels& OptimizerKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kOptimizerAvx512;
  return level == CpuLevel::kAvx2 ? kOptimizerAvx2 : kOptimizerPlain;
}

}  // namespace troop
