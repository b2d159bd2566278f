// kernels/elementwise/cast.h compiled for AVX-512; the build system sets the compiler flags.
#define TROOP_CONVERT_NAMESPACE convert_avx512
#pragma GCC optimize("O3")
#include "kernels/elementwise/cast_impl.h"
