#include "kernels/lstm_impl.h"

namespace troop {

extern const LstmKernels kLstmAvx512;
const LstmKernels kLstmAvx512 = {Forward, Backward, WeighBackward};

}  // namespace troop
