#pragma once

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/lstm/lstm_cell.h"

// LstmKernels' cells on the device: products come before (gates) and after (ds) by MatMul. Arrays
// are device memory, f32 but h, which the next product may want as bf16. One pass over memory, a
// thread to a cell; asynchronous on `stream`.
namespace troop::cuda {

// gates: [rows, 4 hidden] sums without the bias, and then i, f, g, o; h: h_dtype (kF32 or kBF16),
// rows h_stride elements apart.
void LstmForward(Stream& stream, const LstmStep& step, const float* bias, const float* c_before,
                 float* gates, float* c, void* h, DType h_dtype);
void LstmBackward(Stream& stream, const LstmStep& step, const float* c_before, const float* gates,
                  const float* c, const float* dh, float* dc, float* ds);

}  // namespace troop::cuda
