#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/linear.h"

// GPU counterparts of kernels/linear/linear.h: y = activation(x wᵀ + bias). All pointers are to
// device memory and 16-byte aligned. Elements have the type ElementType(precision); gradients of
// parameters are f32. Asynchronous on `stream`.
namespace troop::cuda {

// Arguments of LinearForward.
struct LinearForwardArgs {
  Precision precision = Precision::kF32;
  LinearShape shape;
  Activation activation = Activation::kNone;
  std::int64_t batch = 0;
  const void* x = nullptr;       // [batch, in]
  const void* weight = nullptr;  // [out, in]
  const void* bias = nullptr;    // [out] of y_dtype
  void* y = nullptr;             // [batch, out], overwritten
  DType y_dtype = DType::kF32;   // ElementType(precision), or kF32 (last layer of a network)
};
// Computes y.
void LinearForward(Stream& stream, MatMulPlans& plans, const LinearForwardArgs& args);

// Arguments of LinearBackwardData.
struct LinearBackwardDataArgs {
  Precision precision = Precision::kF32;
  LinearShape shape;
  std::int64_t batch = 0;
  const void* weight = nullptr;   // [out, in]
  const void* dz = nullptr;       // [batch, out], the gradient before the activation
  const void* relu_of = nullptr;  // [batch, in]: the x that is the result of a ReLU, or nullptr
  void* dx = nullptr;             // [batch, in], overwritten
};
// dx = the gradient of x; with relu_of, the gradient before that ReLU (as in ConvBackwardData,
// kernels/cuda/conv/conv2d.h).
void LinearBackwardData(Stream& stream, MatMulPlans& plans, const LinearBackwardDataArgs& args);

// Arguments of LinearBackwardWeight.
struct LinearBackwardWeightArgs {
  Precision precision = Precision::kF32;
  LinearShape shape;
  std::int64_t batch = 0;
  const void* x = nullptr;   // [batch, in]
  const void* dz = nullptr;  // [batch, out], the gradient before the activation
  float* dweight = nullptr;  // [out, in], overwritten
  float* dbias = nullptr;    // [out], overwritten
};
// Gradients of the parameters. Suitable for batches of a few hundred rows: dbias uses SumRows
// without a workspace, which is slower than necessary for more rows.
void LinearBackwardWeight(Stream& stream, MatMulPlans& plans, const LinearBackwardWeightArgs& args);

}  // namespace troop::cuda
