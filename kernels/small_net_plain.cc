#include "kernels/small_net_impl.h"

namespace troop {

extern const SmallNetKernels kSmallNetPlain;
const SmallNetKernels kSmallNetPlain = {TransposeWeights, Forward, Backward};

}  // namespace troop
