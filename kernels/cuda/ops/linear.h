#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/linear.h"

// GPU counterparts of kernels/linear/linear.h: y = activation(x wᵀ + bias). x: [batch, in]; w:
// [out, in]; y: [batch, out]; dz: [batch, out], the gradient before the activation. All pointers
// are to device memory and 16-byte aligned. Elements have the type ElementType(precision);
// gradients of parameters are f32. Asynchronous on `stream`.
namespace troop::cuda {

// Computes y. y_dtype: ElementType(precision), or kF32 (for the last layer of a network). bias:
// [out] of y_dtype.
void LinearForward(Stream& stream, MatMulPlans& plans, Precision precision,
                   const LinearShape& shape, Activation activation, std::int64_t batch,
                   const void* x, const void* weight, const void* bias, void* y, DType y_dtype);
// Overwrites dx, the gradient of x. relu_of: nullptr, or the x that is the result of a ReLU: then
// dx is the gradient before that ReLU (as in ConvBackwardData, kernels/cuda/conv/conv2d.h).
void LinearBackwardData(Stream& stream, MatMulPlans& plans, Precision precision,
                        const LinearShape& shape, std::int64_t batch, const void* weight,
                        const void* dz, const void* relu_of, void* dx);
// Overwrites dweight [out, in] and dbias [out], both f32. Suitable for batches of a few hundred
// rows: dbias uses SumRows without a workspace, which is slower than necessary for more rows.
void LinearBackwardWeight(Stream& stream, MatMulPlans& plans, Precision precision,
                          const LinearShape& shape, std::int64_t batch, const void* x,
                          const void* dz, float* dweight, float* dbias);

}  // namespace troop::cuda
