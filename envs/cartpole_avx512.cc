// Eight environments at once.

#include "envs/cartpole_lanes.h"

namespace troop::cartpole {

void StepAvx512(const BatchStep& step) { StepAll<8>(step); }

}  // namespace troop::cartpole
