// kernels/elementwise/half_precision.h compiled for AVX-512; the build system sets the compiler
// flags.
#define TROOP_HALVES_NAMESPACE halves_avx512
#pragma GCC optimize("O3")
#include "kernels/elementwise/half_precision_impl.h"
