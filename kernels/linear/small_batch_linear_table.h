#pragma once

#include "kernels/linear/small_batch_linear.h"

// Function tables of small_batch_linear.h, one per instruction set. small_batch_linear.cc selects
// one; small_batch_linear_impl.h and small_batch_linear_avx512bf16.cc define them.
namespace troop {

namespace plain {
extern const NarrowKernels<float> kNarrowKernels;
}
namespace avx2 {
extern const NarrowKernels<float> kNarrowKernels;
}
namespace avx512 {
extern const NarrowKernels<float> kNarrowKernels;
}
namespace avx512bf16 {
extern const NarrowKernels<BF16> kNarrowKernels;
}

}  // namespace troop
