#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"

namespace troop::cuda {

// Applies an Epilogue in a separate pass, in place: c [m, n] = activation(c + bias). ldc: elements
// between rows; 0: dense. bias [n] has c_dtype: kF32 or kBF16.
void BiasAndActivate(Stream& stream, Epilogue epilogue, std::int64_t m, std::int64_t n,
                     std::int64_t ldc, const void* bias, void* c, DType c_dtype);

// Arguments of SumRows: sum [n] f32 (+)= Σ over the rows of x [rows, n]. x is kF32 or kBF16. Sums
// are f32; their order depends only on the sizes. O(rows n).
struct SumRowsArgs {
  std::int64_t rows = 0, n = 0;
  std::int64_t stride = 0;  // elements between rows; 0: dense
  const void* x = nullptr;
  DType dtype = DType::kF32;
  float* sum = nullptr;
  bool add = false;
  // SumRowsWorkspace(rows, n) floats. nullptr: one block sums all rows of 64 columns, which is slow
  // for more than some thousand rows.
  float* workspace = nullptr;
};
void SumRows(Stream& stream, const SumRowsArgs& args);
std::int64_t SumRowsWorkspace(std::int64_t rows, std::int64_t n);

}  // namespace troop::cuda
