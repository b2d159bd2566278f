// kernels/lstm/lstm_cell.h compiled for AVX-512; the build system sets the compiler flags.
#include "kernels/lstm/lstm_cell_impl.h"

namespace troop {

extern const LstmKernels kLstmAvx512;
const LstmKernels kLstmAvx512 = {Forward, Backward, WeighBackward};

}  // namespace troop
