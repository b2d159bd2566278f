// kernels/transformer/layer_norm_gelu.h compiled for AVX2; the build system sets the compiler
// flags.
#include "kernels/transformer/layer_norm_gelu_impl.h"

namespace troop {

extern const TransformerKernels kTransformerAvx2;
const TransformerKernels kTransformerAvx2 = {
    Gelu,    GeluBackward, Multiply,        LayerNorm,    LayerNormBackward,
    Softmax, SoftmaxAgain, SoftmaxBackward, CrossEntropy,
};

}  // namespace troop
