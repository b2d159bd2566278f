#define TROOP_NARROW_NAMESPACE narrow_avx512
#include "kernels/linear/small_batch_linear_impl.h"
