// Kernels of priority_math for the baseline instruction set.
#include "replay/priority_math_impl.h"

namespace troop {

const PriorityMathKernels kPriorityMathPlain{"plain", Powers, Weights, Masses};

}  // namespace troop
