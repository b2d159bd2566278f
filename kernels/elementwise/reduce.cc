// Dispatch of elementwise reductions to the best instruction set.
#include "kernels/elementwise/reduce.h"

namespace troop {

// Compiled once per instruction set, from reduce_impl.h.
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

// The best version that `level` admits.
ReduceFunction ReduceFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::Reduce;
  return level == CpuLevel::kAvx2 ? avx2::Reduce : plain::Reduce;
}

// The choice is made once per process.
void Reduce(const ReduceArgs& args) {
  static const ReduceFunction best = ReduceFor(BestCpuLevel());
  best(args);
}

}  // namespace troop
