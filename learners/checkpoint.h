#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/storage/storage.h"
#include "learners/training_config.h"
#include "net/control/reward_statistics.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace troop {

// A checkpoint is a folder checkpoints/<updates>/ of a run:
//   weights.safetensors   one named tensor per parameter (what other programs read); its metadata
//                         has the description of an agent's policy, so that libtroop_policy loads
//                         the file (nn/policy_library/troop_policy.h)
//   state.safetensors     the algorithm's whole state: value, target, optimizer slots
//   state.json            counters, seed (the key of all random streams), the config as TOML
//   manifest.json         name, size and CRC-32C of each file; written last, as the commit mark
// A checkpoint is written under a temporary name and renamed, so a folder with its final name is
// complete.
//
// The best checkpoint (evaluator.keep_best) is a folder best/ of the run in the same format. It has
// the weights of the best evaluation so far: its state has no target and no optimizer slots, so a
// run cannot resume from it, and state.json has the evaluation. It is not one of the checkpoints
// above: no function below but those for it finds, counts or removes it.
inline constexpr char kBestFolder[] = "best";

// The evaluation of the weights in the best checkpoint.
struct CheckpointScore {
  double score = 0;            // mean return, or accuracy in %; finite
  std::int64_t episodes = 0;   // evaluated, or examples
  std::uint64_t version = 0;   // of the weights (WeightsVersion)
  std::int64_t unix_time = 0;  // seconds since 1970; 0: not recorded (serial mode)
};

// The contents of a checkpoint.
struct CheckpointState {
  std::uint64_t updates = 0;
  std::int64_t steps = 0;  // agent steps of the run
  std::string config_toml;
  TensorFile state;                      // Algorithm::State(); best checkpoint: the value alone
  std::optional<CheckpointScore> score;  // best checkpoint only
  std::string policy;                    // EncodedPolicyOf; written but not read; empty: none
  RewardStatistics rewards;              // env.normalize_rewards; no values: not recorded
};

// Writes a checkpoint to `run`, the run folder, and replaces one with the same number of updates.
// Keeps the newest `keep`, including this one, and removes those with more updates, because the run
// has diverged from them. Blocks on the disk. Returns the checkpoint's path within the run folder.
Result<std::string> WriteCheckpoint(Storage* run, const Module& module,
                                    const CheckpointState& checkpoint, std::int64_t keep);
// Corrects the step count of the final checkpoint: the count known at the time of writing is up to
// one heartbeat old. At every moment the old or the new file is complete.
Status CorrectCheckpointSteps(Storage* run, const std::string& path, std::int64_t steps);
// Reads and verifies a checkpoint. Errors: kNotFound; kDataLoss with the file and the defect;
// kInvalidArgument: written by a newer format version.
Result<CheckpointState> ReadCheckpoint(Storage* run, const std::string& path);
// Removes the checkpoints newer than `path` (empty: all), which a rollback has made obsolete.
Status RemoveCheckpointsAfter(Storage* run, const std::string& path);
// Path of the newest complete checkpoint; damaged ones are skipped with a log line.
Result<std::string> NewestCheckpoint(Storage* run);
// Writes the best checkpoint and replaces the one before. At every moment one of the two is
// complete; between two renames, the only one is in best.old/, where BestCheckpoint finds it. One
// process at a time may call. Blocks on the disk. REQUIRES: checkpoint.score.
Status WriteBestCheckpoint(Storage* run, const Module& module, const CheckpointState& checkpoint);
// Removes what an interrupted WriteBestCheckpoint left, and moves the checkpoint back to best/ if
// it was moved aside.
Status RepairBestCheckpoint(Storage* run);
// Path of the best checkpoint within the run folder. Errors: kNotFound, with the remedy.
Result<std::string> BestCheckpoint(Storage* run);
// Reads only the evaluation of the best checkpoint. Errors: kNotFound, as BestCheckpoint;
// kDataLoss.
Result<CheckpointScore> BestScore(Storage* run);
// The checkpoint of a run that a command uses.
enum class CheckpointChoice : std::uint8_t { kNewest, kBest };
// The newest complete checkpoint, read; one with a non-finite value is skipped too.
struct FoundCheckpoint {
  std::string path;
  CheckpointState checkpoint;
};
Result<FoundCheckpoint> NewestFiniteCheckpoint(Storage* run);
// Finds NewestCheckpoint or BestCheckpoint and reads it. Errors: those of the two calls.
Result<FoundCheckpoint> ReadChosenCheckpoint(Storage* run, CheckpointChoice choice);
// The checkpoint that a restarted learner resumes from: the newest one, or the one that the last
// process reported if that is newer; an older one if it is damaged. reported: empty: none. The
// result's path is empty for a new run. Errors: those of reading the only one.
Result<FoundCheckpoint> FindResumeCheckpoint(Storage* run, const std::string& reported);

}  // namespace troop
