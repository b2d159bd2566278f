#pragma once

#include <cstdint>

#include "kernels/conv/conv2d.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"

// The twins of kernels/conv/conv2d.h: a square kernel without padding, in the layouts that are
// there (x: [batch, height, width, channels]; w: [filters, kernel, kernel, channels]; y: [batch,
// out_height, out_width, filters]). Implicit products: no buffer of patches is made in memory. All
// pointers are device memory, 16-byte aligned. Elements are ElementType(precision) but where
// something else is said. Asynchronous on `stream`. O(batch out_height out_width filters kernel²
// channels).
namespace troop::cuda {

// What a convolution reads. u8 (frames as they are kept) are decoded on the fly: x = scale * byte.
struct ConvInput {
  const void* x = nullptr;
  DType dtype = DType::kF32;  // kU8, or ElementType(precision)
  float scale = 1;            // of kU8 alone
};

// y = activation(w * x + bias). bias: f32 [filters].
void ConvForward(Stream& stream, Precision precision, const ConvShape& shape, Activation activation,
                 std::int64_t batch, const ConvInput& input, const void* weight, const float* bias,
                 void* y);

// dx = the gradient of x, overwritten. dz: the gradient before the activation. relu_of: nullptr, or
// [batch, height, width, channels], the x that a ReLU gave: then dx is the gradient before that
// ReLU (0 where it is not above 0), so that no pass of its own is needed.
void ConvBackwardData(Stream& stream, Precision precision, const ConvShape& shape,
                      std::int64_t batch, const void* weight, const void* dz, const void* relu_of,
                      void* dx);

// dweight (f32, w's layout) and dbias (f32 [filters]) are overwritten. scratch: that many bytes.
// The sum's order depends on the sizes alone: the same bytes each time.
std::int64_t ConvBackwardWeightScratch(const ConvShape& shape, std::int64_t batch);
void ConvBackwardWeight(Stream& stream, Precision precision, const ConvShape& shape,
                        std::int64_t batch, const ConvInput& input, const void* dz, float* dweight,
                        float* dbias, void* scratch);

}  // namespace troop::cuda
