#define TROOP_NARROW_NAMESPACE narrow_avx512
#include "kernels/gemm_narrow_impl.h"
