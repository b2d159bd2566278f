// Kernels of priority_math, compiled with AVX2.
#include "replay/selectors/priority_kernels_impl.h"

namespace troop {

const PriorityKernels kPriorityKernelsAvx2{"avx2", Powers, Weights, Masses};

}  // namespace troop
