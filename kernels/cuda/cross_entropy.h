#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device.h"

namespace troop::cuda {

// TransformerKernels' cross_entropy on the device: loss [rows] f32 = log Σ exp(x) - x[label], 0
// where the label is kIgnoredLabel. x, dx [rows, n], dense, both kF32 or both kBF16; dx = scale
// (softmax - one at the label), 0 where ignored; nullptr: not wanted; it may be x. Arithmetic in
// f32; the sums' order follows from n alone. Two passes over x. REQUIRES: 0 <= label < n, or
// ignored.
void CrossEntropy(Stream& stream, std::int64_t rows, std::int64_t n, DType dtype, const void* x,
                  const std::int32_t* label, float scale, float* loss, void* dx);

}  // namespace troop::cuda
