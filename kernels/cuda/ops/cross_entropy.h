#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// TransformerKernels' cross_entropy on the device: loss [rows] f32 = log Σ exp(x) - x[label], 0
// where the label is kIgnoredLabel. x, dx [rows, n], both kF32 or both kBF16; dx = scale
// (softmax - one at the label), 0 where ignored; nullptr: not wanted; it may be x. Arithmetic in
// f32; the sums' order follows from n alone. Two passes over x. REQUIRES: 0 <= label < n, or
// ignored.
struct CrossEntropyArgs {
  std::int64_t rows = 0, n = 0;
  std::int64_t stride = 0;  // elements from one row of x and dx to the next; 0: n. What dx has
                            // between rows becomes 0
  DType dtype = DType::kF32;
  const void* x = nullptr;
  const std::int32_t* label = nullptr;
  float scale = 1;
  float* loss = nullptr;
  std::int32_t* right = nullptr;  // [rows]: 1 where no x is larger than the label's; not ignored
                                  // ones. nullptr: not wanted
  void* dx = nullptr;
  std::int64_t first = 0;  // of a slice: the label of x[0]; labels are the whole row's
};
void CrossEntropy(Stream& stream, const CrossEntropyArgs& args);

// The same of rows that lie in slices on several ranks (SlicedCrossEntropy,
// nn/parallel/tensor_parallel.h): three numbers a row are exchanged, by the caller, between calls
// with the same arguments.
struct CrossEntropySums {
  float* largest = nullptr;  // [rows]
  float* sums = nullptr;     // [2, rows]
  float* own = nullptr;      // [rows]
};
// largest: the slice's, to become the largest of all ranks';
void BeginSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to);
// then sums: Σ exp(x - largest), and the label's x or 0, to become those of all ranks added up;
void ShareSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to);
// and then loss and right, of the whole rows, the same on all ranks, and dx of the slice.
void EndSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                           const CrossEntropySums& of);

}  // namespace troop::cuda
