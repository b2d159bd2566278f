#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Arguments of FrameStackToNhwc.
struct FrameStackToNhwcArgs {
  std::int64_t rows = 0;
  std::int64_t stack = 0;   // images of a row
  std::int64_t pixels = 0;  // of an image
  std::int64_t channels = 0;
  DType dtype = DType::kU8;    // of both arrays: kU8 or kF32
  const void* from = nullptr;  // [rows, stack, pixels, channels]
  void* to = nullptr;          // [rows, pixels, stack · channels], overwritten
};
// Stacked images in the layout of convolutions, the channels of the first image first (as
// MakePictureInput of nn/layers/layers.h). O(elements), one pass.
void FrameStackToNhwc(Stream& stream, const FrameStackToNhwcArgs& args);

}  // namespace troop::cuda
