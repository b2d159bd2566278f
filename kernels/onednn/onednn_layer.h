#pragma once

#include <memory>

#include "core/metrics/package_version.h"
#include "kernels/onednn/layer_kernel.h"
#include "kernels/shapes.h"

// Layers computed by oneDNN. onednn_layer.cc is the only user of dnnl.hpp, which stays out of all
// headers.
namespace troop {

// Applies SetKernelThreads to the calling thread. Call it before each use of oneDNN.
void PrepareKernelThread();

// Version of the loaded oneDNN library.
PackageVersion DnnlPackage();

// Layers of linear.h and conv2d.h. REQUIRES: all sizes are positive, and the kernel fits the input.
std::unique_ptr<LayerKernel> MakeDnnlLinear(const LinearShape& shape, const KernelOptions& options);
std::unique_ptr<LayerKernel> MakeDnnlConv(const ConvShape& shape, const KernelOptions& options);

}  // namespace troop
