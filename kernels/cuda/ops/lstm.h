#pragma once

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/recurrent/lstm_cell.h"

// GPU counterpart of the cells of LstmKernels. The caller computes the products before (gates) and
// after (ds) with MatMul. Arrays are device memory, f32 except h, which may be bf16 for the next
// product. One pass over memory, one thread per cell. Asynchronous on `stream`.
namespace troop::cuda {

// Arguments of LstmForward.
struct LstmForwardArgs {
  LstmStep step;
  const float* bias = nullptr;      // [4 hidden]
  const float* c_before = nullptr;  // [going, hidden]
  float* gates = nullptr;       // [rows, 4 hidden]; in: the sums without the bias; out: i, f, g, o
  float* c = nullptr;           // [rows, hidden], overwritten
  void* h = nullptr;            // [rows, hidden], overwritten; h_stride elements between rows
  DType h_dtype = DType::kF32;  // kF32 or kBF16
};
// One time step.
void LstmForward(Stream& stream, const LstmForwardArgs& args);

// Arguments of LstmBackward.
struct LstmBackwardArgs {
  LstmStep step;
  const float* c_before = nullptr;  // [going, hidden]
  const float* gates = nullptr;     // [rows, 4 hidden], from LstmForward
  const float* c = nullptr;         // [rows, hidden], from LstmForward
  const float* dh = nullptr;        // [rows, hidden]; h_stride elements between rows
  float* dc = nullptr;              // [rows, hidden], replaced, as in LstmKernels::backward
  float* ds = nullptr;              // [rows, 4 hidden], overwritten
};
// Gradients of a time step, as LstmKernels::backward.
void LstmBackward(Stream& stream, const LstmBackwardArgs& args);

}  // namespace troop::cuda
