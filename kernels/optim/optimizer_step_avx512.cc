// kernels/optim/optimizer_step.h compiled for AVX-512; the build system sets the compiler flags.
#include "kernels/optim/optimizer_step_impl.h"

namespace troop {

extern const OptimizerKernels kOptimizerAvx512;
const OptimizerKernels kOptimizerAvx512 = {Adam, RmsProp, Sgd, AdaGrad, AddScaled, SumSquares};

}  // namespace troop
