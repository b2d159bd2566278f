#define TROOP_DROPOUT_NAMESPACE dropout_plain
#pragma GCC optimize("O3")
#include "kernels/dropout_impl.h"
