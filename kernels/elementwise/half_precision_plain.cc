// kernels/elementwise/half_precision.h compiled for the baseline instruction set, without special
// compiler flags.
#define TROOP_HALVES_NAMESPACE halves_plain
#pragma GCC optimize("O3")
#include "kernels/elementwise/half_precision_impl.h"
