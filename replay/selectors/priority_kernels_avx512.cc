// Kernels of priority_math, compiled with AVX-512.
#include "replay/selectors/priority_kernels_impl.h"

namespace troop {

const PriorityKernels kPriorityKernelsAvx512{"avx512", Powers, Weights, Masses};

}  // namespace troop
