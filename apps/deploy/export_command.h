#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/command_line.h"
#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

// File format of an exported policy.
enum class ExportFormat : std::uint8_t {
  kSafetensors,  // for libtroop_policy (nn/policy_library/troop_policy.h)
  kOnnx,         // nn/export/onnx_policy.h
  kC,            // nn/export/c_policy.h
};
constexpr auto EnumNames(ExportFormat) {
  return std::to_array<std::string_view>({"safetensors", "onnx", "c"});
}

// Options of `troop export`.
struct ExportOptions {
  std::string path;  // run folder or checkpoint folder
  bool best = false;
  ExportFormat format = ExportFormat::kSafetensors;
  std::string output;  // empty: policy.FORMAT in the present folder; of C, prefix of names
};
// Writes the policy of a checkpoint, a text classifier (only kOnnx), or an
// image classifier (only kSafetensors, SaveImageWeights), to one file, atomically,
// and returns the file's path. The environment of an agent's run is made once, because its spec is
// part of the policy. Errors: those of LoadCheckpoint and of the format; kInvalidArgument: a model
// in another format.
Result<std::string> ExportPolicy(const ExportOptions& options);

// Adds `troop export` to `app`.
void RegisterExport(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
