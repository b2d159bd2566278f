// kernels/optim/optimizer_step.h compiled for the baseline instruction set, without special
// compiler flags.
#include "kernels/optim/optimizer_step_impl.h"

namespace troop {

extern const OptimizerKernels kOptimizerPlain;
const OptimizerKernels kOptimizerPlain = {Adam, RmsProp, Sgd, AdaGrad, AddScaled, SumSquares};

}  // namespace troop
