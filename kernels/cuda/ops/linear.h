#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/linear.h"

// The twins of kernels/linear/linear.h: y = activation(W x + bias). x: [batch, in]; w: [out, in];
// y: [batch, out]. All pointers are device memory, 16-byte aligned; elements are
// ElementType(precision) but gradients of parameters, which are f32. Asynchronous on `stream`.
namespace troop::cuda {

// y_dtype: ElementType(precision), or kF32 (a network's last layer). bias: [out] of y_dtype.
void LinearForward(Stream& stream, MatMulPlans& plans, Precision precision,
                   const LinearShape& shape, Activation activation, std::int64_t batch,
                   const void* x, const void* weight, const void* bias, void* y, DType y_dtype);
// dx overwritten. relu_of: as ConvBackwardData's.
void LinearBackwardData(Stream& stream, MatMulPlans& plans, Precision precision,
                        const LinearShape& shape, std::int64_t batch, const void* weight,
                        const void* dz, const void* relu_of, void* dx);
// dweight [out, in], dbias [out] f32, overwritten. Batches are of some hundreds: more take longer
// for dbias than they need (SumRows).
void LinearBackwardWeight(Stream& stream, MatMulPlans& plans, Precision precision,
                          const LinearShape& shape, std::int64_t batch, const void* x,
                          const void* dz, float* dweight, float* dbias);

}  // namespace troop::cuda
