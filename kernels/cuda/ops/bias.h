#pragma once

#include <cstdint>

#include "kernels/cuda/ops/matmul.h"

namespace troop::cuda {

// Arguments of BiasAndActivate.
struct BiasAndActivateArgs {
  Epilogue epilogue = Epilogue::kBias;
  std::int64_t m = 0, n = 0;
  std::int64_t ldc = 0;         // elements between rows of c; 0: dense
  const void* bias = nullptr;   // [n] of c_dtype
  void* c = nullptr;            // [m, n], changed in place
  DType c_dtype = DType::kF32;  // kF32 or kBF16
};
// Applies an Epilogue in a separate pass, in place: c = activation(c + bias).
void BiasAndActivate(Stream& stream, const BiasAndActivateArgs& args);

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
  // Sums only the rows r with group[r] == number; nullptr: all.
  const std::int32_t* group = nullptr;  // [rows]
  std::int32_t number = 0;
};
void SumRows(Stream& stream, const SumRowsArgs& args);
std::int64_t SumRowsWorkspace(std::int64_t rows, std::int64_t n);

}  // namespace troop::cuda
