#define TROOP_CONVERT_NAMESPACE convert_plain
#include "kernels/elementwise/cast_impl.h"
