// kernels/elementwise/cast.h compiled for AVX2; the build system sets the compiler flags.
#define TROOP_CONVERT_NAMESPACE convert_avx2
#pragma GCC optimize("O3")
#include "kernels/elementwise/cast_impl.h"
