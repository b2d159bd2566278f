// The shared library: registers both names when learner.library loads it.
#include "nn/extension.h"
#include "gated_linear.h"
#include "munchausen_dqn.h"

TROOP_EXTENSION() {
  TROOP_RETURN_IF_ERROR(troop::RegisterLayer("gated_linear", MakeGatedLinear));
  return troop::RegisterAlgorithm("munchausen_dqn", MakeMunchausenDqn);
}
