#define TROOP_CONVERT_NAMESPACE convert_plain
#include "kernels/convert_impl.h"
