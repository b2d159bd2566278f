// kernels/transformer/dropout.h compiled for AVX-512; the build system sets the compiler flags.
#define TROOP_DROPOUT_NAMESPACE dropout_avx512
#pragma GCC optimize("O3")
#include "kernels/transformer/dropout_impl.h"
