// Selection of the small network kernels, and buffer sizes.
#include "kernels/fused_mlp/fused_network.h"

#include "kernels/fused_mlp/activation_layout.h"

namespace troop {

extern const SmallNetKernels kSmallNetPlain, kSmallNetAvx2, kSmallNetAvx512;

const SmallNetKernels& SmallNetKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kSmallNetAvx512;
  return level == CpuLevel::kAvx2 ? kSmallNetAvx2 : kSmallNetPlain;
}

std::int64_t SmallNetActivations(const SmallNet& net, std::int64_t batch) {
  return SmallNetLayout(net, batch).total;
}

// Backward needs a gradient for every activation, and the transposed weights of the convolution.
std::int64_t SmallNetScratch(const SmallNet& net, std::int64_t batch) {
  return SmallNetLayout(net, batch).total + SmallConvScratch(net);
}

}  // namespace troop
