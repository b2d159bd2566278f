// Kernels of priority_math, compiled with AVX-512.
#include "replay/priority_math_impl.h"

namespace troop {

const PriorityMathKernels kPriorityMathAvx512{"avx512", Powers, Weights, Masses};

}  // namespace troop
