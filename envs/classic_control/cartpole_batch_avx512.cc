// Eight environments at once.

#include "envs/classic_control/cartpole_simd.h"

namespace troop::cartpole {

void StepAvx512(const BatchStep& step) { StepAll<8>(step); }

}  // namespace troop::cartpole
