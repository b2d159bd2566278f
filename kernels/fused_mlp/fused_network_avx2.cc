// kernels/fused_mlp/fused_network.h compiled for AVX2; the build system sets the compiler flags.
#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const FusedNetKernels kSmallNetAvx2;
const FusedNetKernels kSmallNetAvx2 = {TransposeWeights, Forward, Backward};

}  // namespace troop
