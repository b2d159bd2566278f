// Selection of the LSTM kernels for an instruction set.
#include "kernels/recurrent/lstm_cell.h"

namespace troop {

// Each is compiled from one template with the flags of its instruction set.
namespace plain {
extern const LstmKernels kLstmKernels;
}
namespace avx2 {
extern const LstmKernels kLstmKernels;
}
namespace avx512 {
extern const LstmKernels kLstmKernels;
}

const LstmKernels& LstmKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kLstmKernels;
  return level == CpuLevel::kAvx2 ? avx2::kLstmKernels : plain::kLstmKernels;
}

}  // namespace troop
