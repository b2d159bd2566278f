// Decides from the files of a run folder whether the run is new, resumable or finished.
#include "fleet/run/run_status.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "core/storage/json.h"
#include "fleet/run/serial_restore_point.h"
#include "learners/checkpoint.h"
#include "paramserver/replication/shard_snapshots.h"

namespace troop {

// Serial runs write restore points, fleets write checkpoints.
bool CanResume(Storage* run) { return NewestCheckpoint(run).ok() || NewestRestorePoint(run).ok(); }

std::string ResumeHint(Storage* run, const std::string& path) {
  if (CanResume(run)) return fmt::format("resume with: troop resume {}", path);
  return fmt::format(
      "it has no checkpoint to resume from; restart with: troop train {}/config.toml "
      "--overwrite",
      path);
}

void WarnOfDamagedShards(Storage* run) {
  const auto damaged = DamagedShardStates(run);
  if (!damaged.ok()) return fmt::print(stderr, "troop: {}\n", damaged.status().message());
  for (const std::string& line : *damaged) {
    fmt::print(
        stderr,
        "troop: {}; the shard will load an older snapshot, or the newest checkpoint's weights\n",
        line);
  }
}

// An unreadable result counts as none: the run can then be resumed or restarted.
Result<RunStatus> GetRunStatus(const std::string& path) {
  if (!std::filesystem::exists(std::filesystem::path(path) / "config.toml")) return RunStatus::kNew;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  // A finished run has a result with status "ok"; failed and interrupted runs have other statuses.
  constexpr std::size_t kResultBytesMax = 1 << 20;
  const Result<Buffer> text = storage->Read("result.json", kResultBytesMax);
  const Result<JsonValue> result = text.ok() ? ParseJson(text->text()) : text.status();
  if (result.ok()) {
    const Result<std::string> status = result->String("status");
    if (status.ok() && *status == "ok") return RunStatus::kFinished;
  }
  return CanResume(storage.get()) ? RunStatus::kResumable : RunStatus::kNew;
}

}  // namespace troop
