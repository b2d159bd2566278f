#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Arguments of CrossEntropy, the GPU counterpart of TransformerKernels::cross_entropy: loss [rows]
// f32 = log Σ exp(x) - x[label], 0 if the label is kIgnoredLabel. x and dx [rows, n] are both kF32
// or both kBF16; dx = scale weight (softmax - one-hot(label)), 0 if ignored; dx may be x, or
// nullptr if not needed. Computed in f32; the order of sums depends only on n. Two passes over x.
// REQUIRES: 0
// <= label < n, or kIgnoredLabel.
struct CrossEntropyArgs {
  std::int64_t rows = 0, n = 0;
  std::int64_t stride = 0;  // elements between rows of x and dx; 0: n. The gap after each row
                            // of dx becomes 0
  DType dtype = DType::kF32;
  const void* x = nullptr;
  const std::int32_t* label = nullptr;
  float scale = 1;
  const float* weight = nullptr;  // [rows], factors of dx, not of the loss; nullptr: all 1
  float* loss = nullptr;
  std::int32_t* right = nullptr;  // [rows]: 1 if the label has the largest x and is not ignored,
                                  // else 0. nullptr: not needed
  void* dx = nullptr;
  std::int64_t first = 0;  // tensor-parallel: index of x[0] in the whole row
};
void CrossEntropy(Stream& stream, const CrossEntropyArgs& args);

// Cross entropy of rows that are split among tensor-parallel ranks (SlicedCrossEntropy,
// nn/parallel/tensor_parallel.h). Three values per row are exchanged, by the caller, between the
// calls Begin, Share and End with the same arguments.
struct CrossEntropySums {
  float* largest = nullptr;  // [rows]
  float* sums = nullptr;     // [2, rows]
  float* own = nullptr;      // [rows]
};
// Step 1: writes the maximum of the slice to `largest`, which the caller then all-reduces (max).
void BeginSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to);
// Step 2: writes `sums`, which the caller then all-reduces (sum): Σ exp(x - largest), and the x of
// the label, or 0 if it is in another slice.
void ShareSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to);
// Step 3: writes loss and right of the whole rows, equal on all ranks, and dx of the slice.
void EndSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                           const CrossEntropySums& of);

}  // namespace troop::cuda
