#pragma once

#include <memory>

#include "kernels/layer_kernel.h"

namespace troop {

// y[b, o] = activation(Σ_i w[o, i] x[b, i] + bias[o]). x: [batch, in]; w: [out, in]; y: [batch,
// out].
struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options);

}  // namespace troop
