#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// Returns the convolution layer for these sizes. REQUIRES: kernel <= height, width; all sizes are
// positive.
std::unique_ptr<LayerKernel> MakeConvKernel(const ConvShape& shape, const KernelOptions& options);

}  // namespace troop
