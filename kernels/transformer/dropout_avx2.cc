// kernels/transformer/dropout.h compiled for AVX2; the build system sets the compiler flags.
#define TROOP_DROPOUT_NAMESPACE dropout_avx2
#pragma GCC optimize("O3")
#include "kernels/transformer/dropout_impl.h"
