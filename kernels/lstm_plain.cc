#include "kernels/lstm_impl.h"

namespace troop {

extern const LstmKernels kLstmPlain;
const LstmKernels kLstmPlain = {Forward, Backward, WeighBackward};

}  // namespace troop
