// Selection of the GRU kernels for an instruction set.
#include "kernels/recurrent/gru_cell.h"

namespace troop {

// Each is compiled from one template with the flags of its instruction set.
namespace plain {
extern const GruKernels kGruKernels;
}
namespace avx2 {
extern const GruKernels kGruKernels;
}
namespace avx512 {
extern const GruKernels kGruKernels;
}

const GruKernels& GruKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kGruKernels;
  return level == CpuLevel::kAvx2 ? avx2::kGruKernels : plain::kGruKernels;
}

}  // namespace troop
