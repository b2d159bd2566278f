// Dispatch of elementwise reductions to the best instruction set.
#include "kernels/elementwise/reduce.h"

namespace troop {

namespace plain {
void Reduce(const ReduceArgs&);
}
namespace avx2 {
void Reduce(const ReduceArgs&);
}
namespace avx512 {
void Reduce(const ReduceArgs&);
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

void Reduce(const ReduceArgs& args) {
  static const ReduceFunction best = ReduceFor(BestCpuLevel());
  best(args);
}

}  // namespace troop
