// kernels/optim/optimizer_step.h compiled for AVX2; the build system sets the compiler flags.
#include "kernels/optim/optimizer_step_impl.h"

namespace troop {

extern const OptimizerKernels kOptimizerAvx2;
const OptimizerKernels kOptimizerAvx2 = {Adam, RmsProp, Sgd, AdaGrad, AddScaled, SumSquares};

}  // namespace troop
