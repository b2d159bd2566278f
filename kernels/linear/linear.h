#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// REQUIRES: all sizes positive.
std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options);

}  // namespace troop
