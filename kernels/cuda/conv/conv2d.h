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

// Arguments of ConvForward.
struct ConvForwardArgs {
  Precision precision = Precision::kF32;
  ConvShape shape;
  Activation activation = Activation::kNone;
  std::int64_t batch = 0;
  ConvInput input;               // x
  const void* weight = nullptr;  // w
  const float* bias = nullptr;   // [filters]
  void* y = nullptr;             // overwritten
};
// y = activation(w * x + bias).
void ConvForward(Stream& stream, const ConvForwardArgs& args);

// Arguments of ConvBackwardData.
struct ConvBackwardDataArgs {
  Precision precision = Precision::kF32;
  ConvShape shape;
  std::int64_t batch = 0;
  const void* weight = nullptr;   // w
  const void* dz = nullptr;       // layout of y: the gradient before the activation
  const void* relu_of = nullptr;  // x, if it is the result of a ReLU (saves a pass); or nullptr
  void* dx = nullptr;             // layout of x, overwritten
};
// dx = the gradient of x. With relu_of, dx is the gradient of that ReLU's input: 0 where x <= 0.
void ConvBackwardData(Stream& stream, const ConvBackwardDataArgs& args);

// Arguments of ConvBackwardWeight.
struct ConvBackwardWeightArgs {
  Precision precision = Precision::kF32;
  ConvShape shape;
  std::int64_t batch = 0;
  ConvInput input;           // x
  const void* dz = nullptr;  // layout of y: the gradient before the activation
  float* dweight = nullptr;  // layout of w, f32, overwritten
  float* dbias = nullptr;    // [filters], overwritten
  void* scratch = nullptr;   // ConvBackwardWeightScratch bytes, overwritten
};
// Bytes of the scratch of ConvBackwardWeight.
std::int64_t ConvBackwardWeightScratch(const ConvShape& shape, std::int64_t batch);
// Gradients of the parameters. The order of sums depends only on the sizes, so equal inputs give
// equal bytes.
void ConvBackwardWeight(Stream& stream, const ConvBackwardWeightArgs& args);

}  // namespace troop::cuda
