#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/linear.h"

// GPU counterparts of kernels/linear/linear.h: y = activation(W x + bias). x: [batch, in]; w: [out,
// in]; y: [batch, out]. All pointers are device memory, 16-byte aligned. Elements are
// ElementType(precision); gradients of parameters are f32. Asynchronous on `stream`.
namespace troop::cuda {

// Computes y. y_dtype: ElementType(precision), or kF32 (for the last layer of a network). bias:
// [out] of y_dtype.
void LinearForward(Stream& stream, MatMulPlans& plans, Precision precision,
                   const LinearShape& shape, Activation activation, std::int64_t batch,
                   const void* x, const void* weight, const void* bias, void* y, DType y_dtype);
// Overwrites dx. relu_of: as in ConvBackwardData.
void LinearBackwardData(Stream& stream, MatMulPlans& plans, Precision precision,
                        const LinearShape& shape, std::int64_t batch, const void* weight,
                        const void* dz, const void* relu_of, void* dx);
// Overwrites dweight [out, in] and dbias [out], both f32. Suitable for batches of some hundred
// rows: with more, dbias is slower than necessary (SumRows without workspace).
void LinearBackwardWeight(Stream& stream, MatMulPlans& plans, Precision precision,
                          const LinearShape& shape, std::int64_t batch, const void* x,
                          const void* dz, float* dweight, float* dbias);

}  // namespace troop::cuda
