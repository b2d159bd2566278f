// Dispatch of elementwise reductions to the best instruction set.
#include "kernels/elementwise/reduce.h"

namespace troop {

namespace plain {
void Reduce(Reduction, DType, std::int64_t, const void*, const void*, void*);
}
namespace avx2 {
void Reduce(Reduction, DType, std::int64_t, const void*, const void*, void*);
}
namespace avx512 {
void Reduce(Reduction, DType, std::int64_t, const void*, const void*, void*);
}

std::string_view ReductionName(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
  }
  return "unknown";
}

ReduceFunction ReduceFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::Reduce;
  return level == CpuLevel::kAvx2 ? avx2::Reduce : plain::Reduce;
}

void Reduce(Reduction reduction, DType dtype, std::int64_t n, const void* a, const void* b,
            void* out) {
  static const ReduceFunction best = ReduceFor(BestCpuLevel());
  best(reduction, dtype, n, a, b, out);
}

}  // namespace troop
