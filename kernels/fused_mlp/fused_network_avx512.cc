// kernels/fused_mlp/fused_network.h compiled for AVX-512; the build system sets the compiler flags.
#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const FusedNetKernels kSmallNetAvx512;
const FusedNetKernels kSmallNetAvx512 = {TransposeWeights, Forward, Backward};

}  // namespace troop
