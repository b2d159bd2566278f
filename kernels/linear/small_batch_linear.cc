// Selection of the narrow kernels for an instruction set.
#include "kernels/linear/small_batch_linear.h"

#include "kernels/linear/small_batch_linear_table.h"

namespace troop {

const NarrowKernels<float>& NarrowKernelsF32For(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return narrow_avx512::kKernels;
  return level == CpuLevel::kAvx2 ? narrow_avx2::kKernels : narrow_plain::kKernels;
}

const NarrowKernels<BF16>* NarrowKernelsBF16For(CpuLevel level) {
  return level == CpuLevel::kAvx512Bf16 ? &narrow_avx512bf16::kKernels : nullptr;
}

}  // namespace troop
