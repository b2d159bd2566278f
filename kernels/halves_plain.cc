#define TROOP_HALVES_NAMESPACE halves_plain
#pragma GCC optimize("O3")
#include "kernels/halves_impl.h"
