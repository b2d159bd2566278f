#pragma once

#include "kernels/linear/small_batch_linear.h"

// Function tables of gemm_narrow.h, one per instruction set. gemm_narrow.cc selects one;
// gemm_narrow_*.cc define them.
namespace troop {

namespace narrow_plain {
extern const NarrowKernels<float> kKernels;
}
namespace narrow_avx2 {
extern const NarrowKernels<float> kKernels;
}
namespace narrow_avx512 {
extern const NarrowKernels<float> kKernels;
}
namespace narrow_avx512bf16 {
extern const NarrowKernels<BF16> kKernels;
}

}  // namespace troop
