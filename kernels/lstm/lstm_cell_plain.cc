// kernels/lstm/lstm_cell.h compiled for the baseline instruction set, without special compiler
// flags.
#include "kernels/lstm/lstm_cell_impl.h"

namespace troop {

extern const LstmKernels kLstmPlain;
const LstmKernels kLstmPlain = {Forward, Backward, WeighBackward};

}  // namespace troop
