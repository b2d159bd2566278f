// kernels/lstm/lstm_cell.h compiled for AVX2; the build system sets the compiler flags.
#include "kernels/lstm/lstm_cell_impl.h"

namespace troop {

extern const LstmKernels kLstmAvx2;
const LstmKernels kLstmAvx2 = {Forward, Backward, WeighBackward};

}  // namespace troop
