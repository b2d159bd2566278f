#define TROOP_REDUCE_NAMESPACE reduce_avx512
#pragma GCC optimize("O3")
#include "kernels/elementwise/reduce_impl.h"
