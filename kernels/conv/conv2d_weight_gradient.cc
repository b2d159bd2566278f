// Scratch size and selection of the bf16 weight gradient of a convolution.
#include "kernels/conv/conv2d_weight_gradient.h"

#include "kernels/conv/conv2d_weight_gradient_tiling.h"

namespace troop {

std::size_t ConvGradientScratch(const ConvShape& shape) {
  // Pairs of dz for one group of filters, then the offsets of positions in x.
  const ConvGradientPlan plan(shape);
  return std::size_t(plan.items * plan.pairs * kGradientFilters + plan.positions + kGradientAhead) *
         sizeof(std::int32_t);
}

ConvGradientBF16 ConvGradientBF16For(CpuLevel level) {
  return level == CpuLevel::kAvx512Bf16 ? &ConvGradientAvx512Bf16 : nullptr;
}

}  // namespace troop
