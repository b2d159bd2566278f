#define TROOP_HALVES_NAMESPACE halves_avx512
#pragma GCC optimize("O3")
#include "kernels/elementwise/half_precision_impl.h"
