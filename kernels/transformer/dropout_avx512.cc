#define TROOP_DROPOUT_NAMESPACE dropout_avx512
#pragma GCC optimize("O3")
#include "kernels/transformer/dropout_impl.h"
