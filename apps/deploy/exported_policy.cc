// Implements the description of a checkpoint's policy with its parameters.
#include "apps/deploy/exported_policy.h"

#include <memory>
#include <string>
#include <utility>

#include "core/base/version.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/models/model.h"

namespace troop {
// A text model has no environment, and counts no agent steps.
std::map<std::string, std::string> OriginOf(const LoadedCheckpoint& loaded,
                                            const std::string& environment) {
  std::map<std::string, std::string> origin = {
      {"format", "troop"},
      {"troop_version", kTroopVersion},
      {"algorithm", std::string(AlgorithmName(loaded.config.learner))},
      {"updates", std::to_string(loaded.state.updates)}};
  if (environment.empty()) return origin;
  origin["environment"] = environment;
  origin["agent_steps"] = std::to_string(loaded.state.steps);
  return origin;
}

// The views share the memory of the checkpoint.
Result<TensorFile> NamedParameters(const LoadedCheckpoint& loaded, const Module& network) {
  const ConstTensor& all = loaded.state.state.tensors.at("value");
  if (all.elements() != ParameterCount(network)) {
    return DataLoss("{} has {} parameters, but its config describes a network of {}", loaded.path,
                    all.elements(), ParameterCount(network));
  }
  if (!AllFinite(all.as<float>()))
    return DataLoss("{} has a parameter that is not finite", loaded.path);
  TensorFile file;
  for (const ParamSpec& param : network.params())
    file.tensors[param.name] = all.Range(param.offset, param.shape);
  return file;
}

// The environment is made once, because its spec is part of the policy.
Result<EnvSpec> EnvSpecOf(const LoadedCheckpoint& loaded) {
  if (IsSupervised(loaded.config)) {
    return InvalidArgument("{}: a text model has no policy; only agents can be exported",
                           loaded.path);
  }
  return FindEnvSpec(loaded.config.env.id, EnvOptionsOf(loaded.config));
}

// The network is made to learn the names and places of its parameters.
Result<ExportedPolicy> PolicyOf(const LoadedCheckpoint& loaded, const EnvSpec& env) {
  const ModelSetup setup = ModelSetupOf(loaded.config);
  ExportedPolicy policy;
  TROOP_ASSIGN_OR_RETURN(policy.description, DescribePolicy(setup, env));
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Module> network, MakeNetwork(setup, env));
  TROOP_ASSIGN_OR_RETURN(policy.tensors, NamedParameters(loaded, *network));
  policy.tensors.metadata = OriginOf(loaded, env.id);
  return policy;
}

// The library reads the description from the metadata.
Buffer EncodeForLibrary(ExportedPolicy policy) {
  policy.tensors.metadata[kPolicyKey] = EncodePolicy(policy.description);
  return EncodeSafetensors(policy.tensors);
}

}  // namespace troop
