#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const SmallNetKernels kSmallNetPlain;
const SmallNetKernels kSmallNetPlain = {TransposeWeights, Forward, Backward};

}  // namespace troop
