#define TROOP_REDUCE_NAMESPACE reduce_avx2
#pragma GCC optimize("O3")
#include "kernels/elementwise/reduce_impl.h"
