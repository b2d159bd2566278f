// Four environments at once.

#include "envs/cartpole_lanes.h"

namespace troop::cartpole {

void StepAvx2(const BatchStep& step) { StepAll<4>(step); }

}  // namespace troop::cartpole
