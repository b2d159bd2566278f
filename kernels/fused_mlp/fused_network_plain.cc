// kernels/fused_mlp/fused_network.h compiled for the baseline instruction set, without special
// compiler flags.
#include "kernels/fused_mlp/fused_network_impl.h"

namespace troop {

extern const FusedNetKernels kSmallNetPlain;
const FusedNetKernels kSmallNetPlain = {TransposeWeights, Forward, Backward};

}  // namespace troop
