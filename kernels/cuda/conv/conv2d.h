#pragma once

#include <cstdint>

#include "kernels/conv/conv2d.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"

// GPU counterparts of kernels/conv/conv2d.h: square kernel, no padding, in the same layouts (x:
// [batch, height, width, channels]; w: [filters, kernel, kernel, channels]; y: [batch, out_height,
// out_width, filters]). The products are implicit GEMMs: no buffer of patches is built in memory.
// All pointers are device memory, 16-byte aligned. Elements are ElementType(precision) unless
// stated otherwise. Asynchronous on `stream`. O(batch out_height out_width filters kernel²
// channels).
namespace troop::cuda {

// Input of a convolution. u8 (frames as they are stored) is decoded on the fly: x = scale * byte.
struct ConvInput {
  const void* x = nullptr;
  DType dtype = DType::kF32;  // kU8, or ElementType(precision)
  float scale = 1;            // only for kU8
};

// y = activation(w * x + bias). bias: [filters] f32.
void ConvForward(Stream& stream, Precision precision, const ConvShape& shape, Activation activation,
                 std::int64_t batch, const ConvInput& input, const void* weight, const float* bias,
                 void* y);

// dx = the gradient of x, overwritten. dz: the gradient before the activation. relu_of: nullptr, or
// the x [batch, height, width, channels] that is the result of a ReLU: then dx is the gradient
// before that ReLU (0 where x <= 0), which saves a separate pass.
void ConvBackwardData(Stream& stream, Precision precision, const ConvShape& shape,
                      std::int64_t batch, const void* weight, const void* dz, const void* relu_of,
                      void* dx);

// Overwrites dweight (f32, layout of w) and dbias [filters] f32. scratch: ConvBackwardWeightScratch
// bytes. The order of sums depends only on the sizes: the same bytes each time.
std::int64_t ConvBackwardWeightScratch(const ConvShape& shape, std::int64_t batch);
void ConvBackwardWeight(Stream& stream, Precision precision, const ConvShape& shape,
                        std::int64_t batch, const ConvInput& input, const void* dz, float* dweight,
                        float* dbias, void* scratch);

}  // namespace troop::cuda
