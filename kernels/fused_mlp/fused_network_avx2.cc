// kernels/fused_mlp/fused_network.h compiled for AVX2; the build system sets the compiler flags.
#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const SmallNetKernels kSmallNetAvx2;
const SmallNetKernels kSmallNetAvx2 = {TransposeWeights, Forward, Backward};

}  // namespace troop
