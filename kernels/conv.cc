#include "kernels/conv.h"

#include "kernels/dnnl_layer.h"

namespace troop {

std::unique_ptr<LayerKernel> MakeConvKernel(const ConvShape& shape, const KernelOptions& options) {
  return MakeDnnlConv(shape, options);
}

}  // namespace troop
