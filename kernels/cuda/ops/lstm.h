#pragma once

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/lstm/lstm_cell.h"

// GPU counterpart of the cells of LstmKernels. The caller computes the products before (gates) and
// after (ds) with MatMul. Arrays are device memory, f32 except h, which may be bf16 for the next
// product. One pass over memory, one thread per cell. Asynchronous on `stream`.
namespace troop::cuda {

// gates [rows, 4 hidden]: in: the sums without the bias; out: i, f, g, o. h has h_dtype (kF32 or
// kBF16), with h_stride elements between rows.
void LstmForward(Stream& stream, const LstmStep& step, const float* bias, const float* c_before,
                 float* gates, float* c, void* h, DType h_dtype);
// Arguments as LstmKernels::backward.
void LstmBackward(Stream& stream, const LstmStep& step, const float* c_before, const float* gates,
                  const float* c, const float* dh, float* dc, float* ds);

}  // namespace troop::cuda
