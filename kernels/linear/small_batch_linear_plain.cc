// kernels/linear/small_batch_linear.h compiled for the baseline instruction set, without special
// compiler flags.
#define TROOP_NARROW_NAMESPACE narrow_plain
#include "kernels/linear/small_batch_linear_impl.h"
