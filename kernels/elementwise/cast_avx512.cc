#define TROOP_CONVERT_NAMESPACE convert_avx512
#pragma GCC optimize("O3")
#include "kernels/elementwise/cast_impl.h"
