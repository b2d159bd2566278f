#define TROOP_DROPOUT_NAMESPACE dropout_avx512
#pragma GCC optimize("O3")
#include "kernels/dropout_impl.h"
