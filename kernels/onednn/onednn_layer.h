#pragma once

#include <memory>

#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

// The layers as oneDNN computes them. This file keeps dnnl.hpp out of all headers.
namespace troop {

// To be called before each use of the library: SetKernelThreads, on the calling thread.
void PrepareKernelThread();

std::unique_ptr<LayerKernel> MakeDnnlLinear(const LinearShape& shape, const KernelOptions& options);
std::unique_ptr<LayerKernel> MakeDnnlConv(const ConvShape& shape, const KernelOptions& options);

}  // namespace troop
