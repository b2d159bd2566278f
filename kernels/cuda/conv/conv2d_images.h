#pragma once

#include "kernels/cuda/conv/conv2d.h"

// Convolutions in bf16 whose images fit into a block's shared memory: as pictures of Atari games
// and what layers make of them do. A block keeps whole images there, reads each element from
// memory once, and the tensor cores' operands straight from the images: no index is computed in the
// innermost loops, and no patch is copied. Other sizes are conv.cu's.
namespace troop::cuda {

// false: the sizes are not made for it, or this GPU's blocks have too little shared memory; then
// nothing was done. Arguments as in conv.h.
bool ForwardByImages(Stream& stream, const ConvShape& shape, Activation activation,
                     std::int64_t batch, const ConvInput& input, const void* weight,
                     const float* bias, void* y);
bool BackwardDataByImages(Stream& stream, const ConvShape& shape, std::int64_t batch,
                          const void* weight, const void* dz, const void* relu_of, void* dx);
// Bytes of scratch; 0: the sizes are not made for it. Depends on the sizes alone.
std::int64_t BackwardWeightByImagesScratch(const ConvShape& shape, std::int64_t batch);
bool BackwardWeightByImages(Stream& stream, const ConvShape& shape, std::int64_t batch,
                            const ConvInput& input, const void* dz, float* dweight, float* dbias,
                            float* scratch);

}  // namespace troop::cuda
