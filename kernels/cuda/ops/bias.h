#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"

namespace troop::cuda {

// c [m, n] = activation(c + bias) in place, rows ldc apart (0: dense): an Epilogue as a pass of its
// own. bias [n] of c_dtype: kF32 or kBF16.
void BiasAndActivate(Stream& stream, Epilogue epilogue, std::int64_t m, std::int64_t n,
                     std::int64_t ldc, const void* bias, void* c, DType c_dtype);

// sum [n] f32 = Σ over rows of x [rows, n] (kF32 or kBF16), overwritten, or added into. In f32, by
// an order that depends on the sizes alone. O(rows n).
struct SumRowsArgs {
  std::int64_t rows = 0, n = 0;
  std::int64_t stride = 0;  // of rows, in elements; 0: dense
  const void* x = nullptr;
  DType dtype = DType::kF32;
  float* sum = nullptr;
  bool add = false;
  // SumRowsWorkspace(rows, n) floats. nullptr: all rows of 64 columns are one block's, which is
  // slow from some thousands on.
  float* workspace = nullptr;
};
void SumRows(Stream& stream, const SumRowsArgs& args);
std::int64_t SumRowsWorkspace(std::int64_t rows, std::int64_t n);

}  // namespace troop::cuda
