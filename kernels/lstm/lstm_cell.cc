// Selection of the LSTM kernels for an instruction set.
#include "kernels/lstm/lstm_cell.h"

namespace troop {

extern const LstmKernels kLstmPlain, kLstmAvx2, kLstmAvx512;

const LstmKernels& LstmKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kLstmAvx512;
  return level == CpuLevel::kAvx2 ? kLstmAvx2 : kLstmPlain;
}

}  // namespace troop
