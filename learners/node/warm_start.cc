// Implements the start of a run from the weights of another one.

#include "learners/node/warm_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/checkpoint.h"
#include "nn/io/safetensors.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// The weights of a checkpoint as named tensors.
struct NamedWeights {
  std::string checkpoint;
  std::uint64_t updates = 0;
  RewardStatistics rewards;
  TensorFile file;
};

// A folder with a manifest is a checkpoint; any other folder is a run, whose newest one is used.
Result<NamedWeights> ReadNamedWeights(const std::string& init_from) {
  std::error_code error;
  fs::path folder = fs::absolute(init_from, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // for "run/"
  const bool is_checkpoint = fs::exists(folder / "manifest.json", error);
  if (!is_checkpoint && !fs::is_directory(folder / "checkpoints", error)) {
    return NotFound("neither a run (no checkpoints/) nor a checkpoint (no manifest.json)");
  }
  const fs::path root = is_checkpoint ? folder.parent_path() : folder;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(root.string()));
  std::string name = folder.filename().string();
  if (!is_checkpoint) {
    TROOP_ASSIGN_OR_RETURN(name, NewestCheckpoint(storage.get()));
  }
  // Verifies the checksums of all files, the weights included.
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(storage.get(), name));
  NamedWeights weights{.checkpoint = (root / name).string(),
                       .updates = state.updates,
                       .rewards = state.rewards,
                       .file = {}};
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(name + "/weights.safetensors"));
  TROOP_ASSIGN_OR_RETURN(weights.file, DecodeSafetensors(bytes));
  return weights;
}

// Why a parameter has no counterpart; empty: it has one.
std::string Mismatch(const ParamSpec& param, const TensorFile& file) {
  const auto found = file.tensors.find(param.name);
  if (found == file.tensors.end()) return "not there";
  const TensorSpec want{DType::kF32, param.shape};
  if (found->second.spec() == want) return "";
  return fmt::format("{} there, {} here", found->second.spec().ToString(), want.ToString());
}

// Copies what matches; nothing is written if a value is not finite.
Result<WarmStart> CopyMatching(const NamedWeights& weights, const Module& whole,
                               std::span<float> value) {
  WarmStart start{
      .checkpoint = weights.checkpoint, .updates = weights.updates, .rewards = weights.rewards};
  std::vector<const ParamSpec*> matched;
  for (const ParamSpec& param : whole.params()) {
    if (const std::string why = Mismatch(param, weights.file); !why.empty()) {
      start.not_matched.push_back(fmt::format("{} ({})", param.name, why));
      continue;
    }
    if (!AllFinite(weights.file.tensors.at(param.name).as<float>())) {
      return DataLoss("{} has a non-finite value in {}; use an earlier checkpoint", param.name,
                      weights.checkpoint);
    }
    matched.push_back(&param);
  }
  // Vectors match by chance: the bias of a scalar head has one element in every network.
  const bool useful =
      std::ranges::any_of(matched, [](const ParamSpec* param) { return param->shape.rank() >= 2; });
  if (!useful) {
    return InvalidArgument(
        "{} has none of the weight matrices of this network, by name and shape{}; use a run with "
        "the same network",
        weights.checkpoint,
        start.not_matched.empty() ? "" : fmt::format(": {}", start.not_matched.front()));
  }
  for (const ParamSpec* const param : matched) {
    const ConstTensor& tensor = weights.file.tensors.at(param->name);
    std::ranges::copy(tensor.as<float>(), value.begin() + param->offset);
  }
  start.tensors = std::int64_t(matched.size());
  return start;
}

}  // namespace

std::string WarmStart::Describe() const {
  std::string out =
      fmt::format("learner.init_from: {} of {} tensors are those of {} (update {})", tensors,
                  tensors + std::int64_t(not_matched.size()), checkpoint, updates);
  if (!not_matched.empty()) {
    out += fmt::format("; initial values: {}", fmt::join(not_matched, ", "));
  }
  return out;
}

Result<WarmStart> LoadWarmStart(const TrainingConfig& config, const Module& whole,
                                std::span<float> value) {
  const std::string context = "learner.init_from: " + config.learner.init_from;
  const Result<NamedWeights> weights = ReadNamedWeights(config.learner.init_from);
  if (!weights.ok()) return weights.status().WithContext(context);
  Result<WarmStart> start = CopyMatching(*weights, whole, value);
  if (!start.ok()) return start.status().WithContext("learner.init_from");
  return start;
}

// Every rank overlays the whole model and takes its slice, as for model.pretrained.
Result<RewardStatistics> BeginWarm(const TrainingConfig& config, const EnvSpec& env,
                                   const TensorParallelRank& place, Algorithm* algorithm) {
  if (config.learner.init_from.empty()) return RewardStatistics();
  TROOP_ASSIGN_OR_RETURN(const auto whole, MakeNetwork(ModelSetupOf(config), env));
  std::vector<float> value(std::size_t(ParameterCount(*whole)));
  InitParameters(*whole, std::uint64_t(config.seed), value);
  TROOP_ASSIGN_OR_RETURN(const WarmStart start, LoadWarmStart(config, *whole, value));
  // A stage of a pipeline cuts the states that it receives.
  if (place.ranks > 1 && !ClassifiesImages(config)) {
    TROOP_ASSIGN_OR_RETURN(const auto part, MakeTextModel(ModelSetupOf(config), place));
    std::vector<float> mine(std::size_t(ParameterCount(*part)));
    TakeSlice(*whole, *part, value, mine);
    value = std::move(mine);
  }
  // Only these two tensors change: the optimizer's slots and the counters stay at their beginning.
  TensorFile state = algorithm->State();
  for (const char* const name : {"value", "target"}) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) continue;
    found->second = ConstTensor(Buffer::Copy(std::as_bytes(std::span<const float>(value))),
                                {DType::kF32, {std::int64_t(value.size())}});
  }
  TROOP_RETURN_IF_ERROR(algorithm->SetState(state));
  LogInfo("{}", start.Describe());
  return start.rewards;
}

// Loads into scratch memory: only loading compares all names and sizes.
Status CheckWarmStart(const TrainingConfig& config, const EnvSpec& env) {
  if (config.learner.init_from.empty()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const auto whole, MakeNetwork(ModelSetupOf(config), env));
  std::vector<float> value(std::size_t(ParameterCount(*whole)));
  return LoadWarmStart(config, *whole, value).status();
}

}  // namespace troop
