// kernels/elementwise/cast.h compiled for the baseline instruction set, without special compiler
// flags.
#define TROOP_CONVERT_NAMESPACE convert_plain
#include "kernels/elementwise/cast_impl.h"
