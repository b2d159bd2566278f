#pragma once

#include <cstdint>

#include "kernels/cuda/matmul.h"

namespace troop::cuda {

// c [m, n] = activation(c + bias) in place, rows ldc apart (0: dense): an Epilogue as a pass of its
// own. c_dtype: kF32 or kBF16.
void BiasAndActivate(Stream& stream, Epilogue epilogue, std::int64_t m, std::int64_t n,
                     std::int64_t ldc, const float* bias, void* c, DType c_dtype);

// sum [n] f32 = Σ over rows of x [rows, n] (kF32 or kBF16), which are `stride` elements apart (0:
// dense); overwritten, or added into. In f32, by an order that depends on the sizes alone. O(rows
// n).
void SumRows(Stream& stream, std::int64_t rows, std::int64_t n, const void* x, DType dtype,
             float* sum, bool add = false, std::int64_t stride = 0);

}  // namespace troop::cuda
