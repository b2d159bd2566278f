#include "learners/algorithm.h"

#include "learners/dqn.h"
#include "nn/model.h"

namespace troop {

Result<std::unique_ptr<Algorithm>> MakeAlgorithm(const Config& config, const EnvSpec& env) {
  const std::string& name = config.learner.algorithm;
  if (name != "dqn") {
    return InvalidArgument("learner.algorithm is \"{}\"; known are \"dqn\"", name);
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> network, MakeNetwork(config, env));
  EnvSpec seen = env;  // batches hold what the network takes
  seen.observation = NetworkInput(config, env);
  return MakeDqn(config, seen, std::move(network));
}

}  // namespace troop
