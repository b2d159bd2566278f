#define TROOP_NARROW_NAMESPACE narrow_avx2
#include "kernels/gemm_narrow_impl.h"
