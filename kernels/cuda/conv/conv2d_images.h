#pragma once

#include "kernels/cuda/conv/conv2d.h"

// bf16 convolutions whose images fit the shared memory of a block, such as Atari frames and the
// activations after them. A block keeps whole images in shared memory, reads each element from
// global memory once, and loads the operands of the tensor cores directly from the images: the
// innermost loops compute no indices and copy no patches. conv2d.cu handles all other sizes.
namespace troop::cuda {

// These functions return false, without any effect, if they do not support the sizes or if blocks
// of this GPU have too little shared memory. Arguments as in conv2d.h;
// precision is kBF16.
bool ForwardByImages(Stream& stream, const ConvForwardArgs& args);
bool BackwardDataByImages(Stream& stream, const ConvBackwardDataArgs& args);
// Bytes of scratch; 0 if the sizes are not supported. Depends only on the sizes.
std::int64_t BackwardWeightByImagesScratch(const ConvShape& shape, std::int64_t batch);
bool BackwardWeightByImages(Stream& stream, const ConvBackwardWeightArgs& args);

}  // namespace troop::cuda
