#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// Returns the fastest implementation for these sizes. Wide layers (2^18 weights or more) use
// small_batch_linear.h for batches up to kNarrowBatchMax, and oneDNN above it. All other layers use
// oneDNN.
std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options);

}  // namespace troop
