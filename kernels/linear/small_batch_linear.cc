// Selection of the narrow kernels for an instruction set.
#include "kernels/linear/small_batch_linear.h"

#include "kernels/linear/small_batch_linear_table.h"

namespace troop {

const NarrowKernels<float>& NarrowKernelsF32For(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kNarrowKernels;
  return level == CpuLevel::kAvx2 ? avx2::kNarrowKernels : plain::kNarrowKernels;
}

const NarrowKernels<BF16>* NarrowKernelsBF16For(CpuLevel level) {
  return level == CpuLevel::kAvx512Bf16 ? &avx512bf16::kNarrowKernels : nullptr;
}

}  // namespace troop
