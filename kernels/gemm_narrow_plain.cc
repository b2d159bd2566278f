#define TROOP_NARROW_NAMESPACE narrow_plain
#include "kernels/gemm_narrow_impl.h"
