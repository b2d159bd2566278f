#pragma once

#include <map>
#include <string>

#include "apps/deploy/loaded_checkpoint.h"
#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace troop {

// The policy of a checkpoint, as other programs receive it.
struct ExportedPolicy {
  PolicyDescription description;
  TensorFile tensors;  // parameters by name; the metadata state the origin
};

// The spec of the environment that a checkpoint was trained with. It may start a worker process.
// Errors: kInvalidArgument: a text model; those of FindEnvSpec.
Result<EnvSpec> EnvSpecOf(const LoadedCheckpoint& loaded);
// Describes the policy and names its parameters. env: from EnvSpecOf. Errors: those of
// DescribePolicy; kDataLoss: another number of parameters, or one that is not finite.
Result<ExportedPolicy> PolicyOf(const LoadedCheckpoint& loaded, const EnvSpec& env);
// Metadata that state the origin of a file. environment: empty for a text model.
std::map<std::string, std::string> OriginOf(const LoadedCheckpoint& loaded,
                                            const std::string& environment);
// The parameters of a checkpoint by name. Errors: kDataLoss: another number of values, or one that
// is not finite.
Result<TensorFile> NamedParameters(const LoadedCheckpoint& loaded, const Module& network);
// The bytes of a safetensors file for libtroop_policy.
Buffer EncodeForLibrary(ExportedPolicy policy);

}  // namespace troop
