// Kernels of priority_math for the baseline instruction set.
#include "replay/selectors/priority_kernels_impl.h"

namespace troop {

const PriorityMathKernels kPriorityMathPlain{"plain", Powers, Weights, Masses};

}  // namespace troop
