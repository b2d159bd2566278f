#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const SmallNetKernels kSmallNetAvx512;
const SmallNetKernels kSmallNetAvx512 = {TransposeWeights, Forward, Backward};

}  // namespace troop
