#pragma once

#include <span>
#include <string>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "learners/checkpoint.h"

namespace troop {

// A checkpoint and the config that it was written with.
struct LoadedCheckpoint {
  std::string path;  // of the checkpoint
  CheckpointState state;
  Config config;
  // The parameters of the whole network, [P].
  std::span<const float> weights() const { return state.state.tensors.at("value").as<float>(); }
};

// Reads a checkpoint: a folder with a manifest is a checkpoint, any other folder a run, whose
// newest or best one is chosen. Errors: kNotFound: neither of the two; kDataLoss: damaged, or
// without weights; kInvalidArgument: the best one of a checkpoint folder.
Result<LoadedCheckpoint> LoadCheckpoint(const std::string& path, CheckpointChoice choice);

}  // namespace troop
