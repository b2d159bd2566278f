// kernels/transformer/dropout.h compiled for the baseline instruction set, without special compiler
// flags.
#define TROOP_DROPOUT_NAMESPACE dropout_plain
#pragma GCC optimize("O3")
#include "kernels/transformer/dropout_impl.h"
