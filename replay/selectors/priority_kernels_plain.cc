// Kernels of priority_math for the baseline instruction set.
#include "replay/selectors/priority_kernels_impl.h"

namespace troop {

const PriorityKernels kPriorityKernelsPlain{"plain", Powers, Weights, Masses};

}  // namespace troop
