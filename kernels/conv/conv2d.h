#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// REQUIRES: kernel <= height, width; all sizes positive.
std::unique_ptr<LayerKernel> MakeConvKernel(const ConvShape& shape, const KernelOptions& options);

}  // namespace troop
