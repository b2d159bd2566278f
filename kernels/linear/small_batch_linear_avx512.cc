// kernels/linear/small_batch_linear.h compiled for AVX-512; the build system sets the compiler
// flags.
#define TROOP_NARROW_NAMESPACE narrow_avx512
#include "kernels/linear/small_batch_linear_impl.h"
