// kernels/transformer/layer_norm_gelu.h compiled for AVX-512; the build system sets the compiler
// flags.
#include "kernels/transformer/layer_norm_gelu_impl.h"

namespace troop {

extern const TransformerKernels kTransformerAvx512;
const TransformerKernels kTransformerAvx512 = {
    Gelu,    GeluBackward, Multiply,        LayerNorm,    LayerNormBackward,
    Softmax, SoftmaxAgain, SoftmaxBackward, CrossEntropy,
};

}  // namespace troop
