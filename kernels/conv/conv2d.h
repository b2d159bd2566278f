#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// Returns the convolution layer for these sizes. REQUIRES: kernel <= height + 2 padding, width + 2
// padding; groups divide channels and filters; all sizes are positive.
std::unique_ptr<LayerKernel> MakeConvKernel(const ConvShape& shape, const KernelOptions& options);

}  // namespace troop
