// Selection of the small network kernels, and buffer sizes.
#include "kernels/fused_mlp/fused_network.h"

#include "kernels/fused_mlp/activation_layout.h"

namespace troop {

namespace plain {
extern const FusedNetKernels kFusedNetKernels;
}
namespace avx2 {
extern const FusedNetKernels kFusedNetKernels;
}
namespace avx512 {
extern const FusedNetKernels kFusedNetKernels;
}

const FusedNetKernels& SmallNetKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kFusedNetKernels;
  return level == CpuLevel::kAvx2 ? avx2::kFusedNetKernels : plain::kFusedNetKernels;
}

std::int64_t SmallNetActivations(const FusedNet& net, std::int64_t batch) {
  return FusedNetLayout(net, batch).total;
}

// Backward needs a gradient for every activation, and the transposed weights of the convolution.
std::int64_t SmallNetScratch(const FusedNet& net, std::int64_t batch) {
  return FusedNetLayout(net, batch).total + SmallConvScratch(net);
}

}  // namespace troop
