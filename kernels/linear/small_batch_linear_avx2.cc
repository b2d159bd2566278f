// kernels/linear/small_batch_linear.h compiled for AVX2; the build system sets the compiler flags.
#define TROOP_NARROW_NAMESPACE narrow_avx2
#include "kernels/linear/small_batch_linear_impl.h"
