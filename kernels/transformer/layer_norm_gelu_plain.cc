// kernels/transformer/layer_norm_gelu.h compiled for the baseline instruction set, without special
// compiler flags.
#include "kernels/transformer/layer_norm_gelu_impl.h"

namespace troop {

extern const TransformerKernels kTransformerPlain;
const TransformerKernels kTransformerPlain = {
    Gelu,    GeluBackward, Multiply,        LayerNorm,    LayerNormBackward,
    Softmax, SoftmaxAgain, SoftmaxBackward, CrossEntropy,
};

}  // namespace troop
