#pragma once

#include <memory>
#include <string>

#include "core/config.h"
#include "core/storage.h"

namespace troop {

// runs/<name>/ of one run, held exclusively while it lives:
//   config.toml           resolved: the whole truth of what ran
//   run.json              process, coordinator endpoint, version: how `status` finds a live run
//   result.json           written last: steps, updates, wall clock, final score
//   metrics.jsonl         one line a second;  evaluations.jsonl: one line an evaluation
//   events.out.tfevents.* the same numbers for TensorBoard
//   curve.png             the learning curve
//   checkpoints/<updates> see learners/checkpoint.h
//   logs/<role>.log       one per role; launcher.log
//   restore/               of a serial run: see apps/restore_point.h
//   incarnation, lock
struct RunFolder {
  std::string path;  // absolute
  Config config;
  std::unique_ptr<Storage> storage;  // rooted there
  std::unique_ptr<StorageLock> lock;
  std::string made;  // the topmost folder that was not there before; empty: all were
};

enum class FolderUse {
  kFresh,      // must not hold a run yet
  kOverwrite,  // what is there is removed first
  kResume,     // must hold a run; config.toml is read from there
};

std::string RunPath(const Config& config);  // absolute path of log.dir/name
// Changes nothing but what kOverwrite asks for. Errors: kAlreadyExists when it holds a run (with
// what to do), another process holds it (with its pid), or kOverwrite would remove what is no run.
Result<RunFolder> OpenRunFolder(const Config& config, FolderUse use);
// Of a start that failed before BeginRun: removes the folders that OpenRunFolder has made.
// REQUIRES: the lock is held.
void RemoveUnbegun(const RunFolder& folder);
// Writes the resolved config, removes the result of the part before.
Status BeginRun(const RunFolder& folder);
// The config of an existing run, with overrides. Errors: kNotFound.
Result<Config> ReadRunConfig(const std::string& path, std::span<const std::string> overrides);

}  // namespace troop
