// kernels/elementwise/reduce.h compiled for the baseline instruction set, without special compiler
// flags.
#define TROOP_REDUCE_NAMESPACE reduce_plain
#pragma GCC optimize("O3")
#include "kernels/elementwise/reduce_impl.h"
