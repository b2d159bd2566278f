#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

namespace troop {

// Returns the fastest layer for these sizes: oneDNN, or for wide layers gemm_narrow.h at small
// batches.
std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options);

}  // namespace troop
