// kernels/elementwise/reduce.h compiled for AVX2; the build system sets the compiler flags.
#define TROOP_REDUCE_NAMESPACE reduce_avx2
#pragma GCC optimize("O3")
#include "kernels/elementwise/reduce_impl.h"
