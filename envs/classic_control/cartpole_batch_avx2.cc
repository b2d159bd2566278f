// Four environments at once.

#include "envs/classic_control/cartpole_simd.h"

namespace troop::cartpole {

void StepAvx2(const BatchStep& step) { StepAll<4>(step); }

}  // namespace troop::cartpole
