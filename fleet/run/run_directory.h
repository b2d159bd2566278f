#pragma once

#include <memory>
#include <string>

#include "core/storage/storage.h"
#include "fleet/config/config.h"

namespace troop {

// The folder runs/<name>/ of one run, locked while this object lives:
//   config.toml           the resolved config, complete
//   run.json              process, coordinator endpoint, version; `status` finds a live run with it
//   provenance.jsonl      program, machine and packages of each start (apps/launch/provenance.h)
//   result.json           written last: steps, updates, wall clock, final score
//   metrics.jsonl         one line per second;  evaluations.jsonl: one line per evaluation
//   events.out.tfevents.* the same metrics for TensorBoard
//   curve.png             the learning curve
//   checkpoints/<updates> see learners/checkpoint.h;  best: the best one (evaluator.keep_best)
//   logs/<role>.log       one per role; launcher.log
//   episodes/             recorded episodes (actor.record_episodes, replay/episodes)
//   restore/              restore points of a serial run, see fleet/run/serial_restore_point.h
//   incarnation, lock
struct RunFolder {
  std::string path;  // absolute
  Config config;
  std::unique_ptr<Storage> storage;  // rooted at path
  std::unique_ptr<StorageLock> lock;
  std::string made;  // topmost folder that was created; empty: none
};

// Locks the folder of a run or a sweep by its file `lock`. A process that is killed between fork
// and exec leaves the lock to its child for a moment, so a lock of an exited process is retried for
// up to 1 s. Errors: kAlreadyExists, with the process that holds it.
Result<std::unique_ptr<StorageLock>> LockRun(Storage* storage);

enum class FolderUse {
  kFresh,      // must not hold a run yet
  kOverwrite,  // an existing run is removed first
  kResume,     // must hold a run; its config.toml is used
};

// The absolute path of log.dir/name.
std::string RunPath(const Config& config);
// Opens and locks the run folder. Removes the old run for kOverwrite, and for kFresh the metrics
// of one that was killed before BeginRun; changes no files otherwise. Errors: kAlreadyExists:
// it holds a run (kFresh), another process holds it (with its pid), or it holds files that are not
// a run (kOverwrite); kNotFound: no such folder (kResume); kInvalidArgument: it is not writable.
Result<RunFolder> OpenRunFolder(const Config& config, FolderUse use);
// Marks the folder as that of a run before any other file is written, so that a run that is killed
// before BeginRun can be overwritten. Nothing is marked if the folder holds foreign files.
Status MarkStarting(const RunFolder& folder);
// Undoes OpenRunFolder and MarkStarting after a start that failed before BeginRun: removes the mark
// and the folders that were created.
// REQUIRES: the lock is held.
void RemoveUnbegun(const RunFolder& folder);
// Writes the resolved config and removes the result of an earlier part of the run.
Status BeginRun(const RunFolder& folder);
// The config of an existing run, with overrides ("key=value"). log.dir and name are set to the
// folder's present place. Errors: kNotFound; those of LoadSavedConfigFile.
Result<Config> ReadRunConfig(const std::string& path, std::span<const std::string> overrides);

}  // namespace troop
