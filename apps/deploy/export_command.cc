// `troop export`: the policy of a checkpoint as one file for other programs.
#include "apps/deploy/export_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "apps/deploy/loaded_checkpoint.h"
#include "core/base/version.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/export/c_policy.h"
#include "nn/export/onnx_policy.h"
#include "nn/export/policy_description.h"
#include "nn/models/model.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Metadata that state the origin of the file.
std::map<std::string, std::string> OriginOf(const LoadedCheckpoint& loaded, const EnvSpec& env) {
  return {{"format", "troop"},
          {"troop_version", kTroopVersion},
          {"environment", env.id},
          {"algorithm", std::string(EnumName(loaded.config.learner.algorithm))},
          {"updates", std::to_string(loaded.state.updates)},
          {"agent_steps", std::to_string(loaded.state.steps)}};
}

// The parameters by name. Errors: kDataLoss: another number of values, or one that is not finite.
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

// The description travels in the metadata of safetensors and ONNX. file_name: the prefix of all
// names in C.
Result<Buffer> Encode(ExportFormat format, const std::string& file_name,
                      const PolicyDescription& policy, TensorFile file) {
  switch (format) {
    case ExportFormat::kSafetensors:
      file.metadata[kPolicyKey] = EncodePolicy(policy);
      return EncodeSafetensors(file);
    case ExportFormat::kOnnx:
      return EncodeOnnxPolicy(policy, file);
    case ExportFormat::kC:
      break;
  }
  TROOP_ASSIGN_OR_RETURN(const std::string text,
                         EncodeCPolicy(policy, file, CPolicyName(file_name)));
  return Buffer::Copy(std::as_bytes(std::span(text)));
}

}  // namespace

Result<std::string> ExportPolicy(const ExportOptions& options) {
  // 1. The checkpoint, and the spec of its environment.
  TROOP_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded,
                         LoadCheckpoint(options.path, options.best ? CheckpointChoice::kBest
                                                                   : CheckpointChoice::kNewest));
  if (IsSupervised(loaded.config)) {
    return InvalidArgument("{}: a text model has no policy; only agents can be exported",
                           loaded.path);
  }
  const ModelSetup setup = ModelSetupOf(loaded.config);
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env,
                         FindEnvSpec(loaded.config.env.id, EnvOptionsOf(loaded.config)));
  // 2. The policy.
  TROOP_ASSIGN_OR_RETURN(const PolicyDescription policy, DescribePolicy(setup, env));
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Module> network, MakeNetwork(setup, env));
  TROOP_ASSIGN_OR_RETURN(TensorFile file, NamedParameters(loaded, *network));
  file.metadata = OriginOf(loaded, env);
  const fs::path path = fs::absolute(
      options.output.empty() ? fmt::format("policy.{}", EnumName(options.format)) : options.output);
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes,
                         Encode(options.format, path.filename().string(), policy, std::move(file)));
  // 3. The file.
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(path.parent_path().string()));
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(path.filename().string(), bytes.bytes()));
  return path.string();
}

void RegisterExport(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "write the policy of a checkpoint to a file");
  command
      ->add_option("checkpoint", options->path,
                   "run folder (newest checkpoint), or checkpoint folder")
      ->required();
  command->add_flag("--best", options->best,
                    "the best checkpoint of the run (evaluator.keep_best)");
  command
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& name) { options->format = *ParseEnum<ExportFormat>(name); },
          "safetensors (default), for libtroop_policy; onnx; or c, for microcontrollers")
      ->check(CLI::IsMember(std::vector<std::string>{"safetensors", "onnx", "c"}))
      ->type_name("FORMAT");
  command->add_option("--out", options->output, "the file (policy.FORMAT)");
  // The path is printed, because the default is in the present folder.
  command->callback([options, chosen] {
    *chosen = [options] {
      const Result<std::string> path = ExportPolicy(*options);
      if (!path.ok()) {
        fmt::print(stderr, "troop: {}\n", path.status().message());
        return ExitCodeFor(path.status());
      }
      fmt::print("wrote {}\n", *path);
      return int(kExitOk);
    };
  });
}

}  // namespace troop
