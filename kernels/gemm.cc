#include "kernels/gemm.h"

#include "kernels/dnnl_layer.h"

namespace troop {

std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options) {
  return MakeDnnlLinear(shape, options);
}

}  // namespace troop
