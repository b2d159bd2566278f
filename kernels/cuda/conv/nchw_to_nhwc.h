#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Stacked images in the layout of convolutions: to [rows, pixels, stack · channels] = from [rows,
// stack, pixels, channels], the channels of the first image first (as MakePictureInput of
// nn/layers/layers.h). dtype: kU8 or kF32. O(elements), one pass.
void FrameStackToNhwc(Stream& stream, std::int64_t rows, std::int64_t stack, std::int64_t pixels,
                      std::int64_t channels, const void* from, DType dtype, void* to);

}  // namespace troop::cuda
