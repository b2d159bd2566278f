#include "kernels/optimizer_impl.h"

namespace troop {

extern const OptimizerKernels kOptimizerAvx2;
const OptimizerKernels kOptimizerAvx2 = {Adam, RmsProp, SumSquares};

}  // namespace troop
