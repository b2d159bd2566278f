// Selection of the small network kernels, and buffer sizes.
#include "kernels/fused_mlp/fused_network.h"

#include "kernels/fused_mlp/activation_layout.h"

namespace troop {

extern const FusedNetKernels kSmallNetPlain, kSmallNetAvx2, kSmallNetAvx512;

const FusedNetKernels& SmallNetKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kSmallNetAvx512;
  return level == CpuLevel::kAvx2 ? kSmallNetAvx2 : kSmallNetPlain;
}

std::int64_t SmallNetActivations(const FusedNet& net, std::int64_t batch) {
  return FusedNetLayout(net, batch).total;
}

// Backward needs a gradient for every activation, and the transposed weights of the convolution.
std::int64_t SmallNetScratch(const FusedNet& net, std::int64_t batch) {
  return FusedNetLayout(net, batch).total + SmallConvScratch(net);
}

}  // namespace troop
