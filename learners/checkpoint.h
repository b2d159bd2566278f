#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"
#include "core/storage.h"
#include "nn/module.h"
#include "nn/safetensors.h"

namespace troop {

// A checkpoint is a folder checkpoints/<updates>/ of a run:
//   weights.safetensors   one named tensor per parameter (what other programs read)
//   state.safetensors     the algorithm's whole state: value, target, optimizer slots
//   state.json            counters, seed (all random streams are keyed by it), the config as TOML
//   manifest.json         name, size and CRC-32C of each file; written last: it makes the rest
//   valid
// It is written to a temporary name and renamed, so a folder under its final name is whole.
struct CheckpointState {
  std::uint64_t updates = 0;
  std::int64_t steps = 0;  // agent steps of the run
  std::string config_toml;
  TensorFile state;  // Algorithm::State()
};

// `run`: the run's folder. Replaces a checkpoint of as many updates. Keeps the newest `keep`, this
// one among them, and removes those with more updates: their course was given up. Blocks on the
// disk. Returns the folder's path within the run.
Result<std::string> WriteCheckpoint(Storage* run, const Module& module,
                                    const CheckpointState& checkpoint, std::int64_t keep);
// Says of a checkpoint that so many agent steps are behind it: what the learner knew when it wrote
// the final one is as old as a heartbeat. At every moment one of the two is whole.
Status CorrectCheckpointSteps(Storage* run, const std::string& path, std::int64_t steps);
// Errors: kNotFound; kDataLoss with the file and what is wrong with it; kInvalidArgument for a
// newer format.
Result<CheckpointState> ReadCheckpoint(Storage* run, const std::string& path);
// Removes those behind `path` (empty: all): their course is given up.
Status RemoveCheckpointsAfter(Storage* run, const std::string& path);
// The newest whole checkpoint; damaged ones are passed over with a line in the log.
Result<std::string> NewestCheckpoint(Storage* run);
// The same, read; one with a number that is NaN or infinite is passed over, too.
struct FoundCheckpoint {
  std::string path;
  CheckpointState checkpoint;
};
Result<FoundCheckpoint> NewestFiniteCheckpoint(Storage* run);

}  // namespace troop
