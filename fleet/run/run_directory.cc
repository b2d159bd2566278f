// Creating, locking, overwriting and reading run folders.
#include "fleet/run/run_directory.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "fleet/config/config_migration.h"
#include "fleet/run/run_status.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
constexpr char kConfigFile[] = "config.toml";
// The name under which BeginRun writes the config first. Until then it is the mark of a start.
constexpr char kStartingFile[] = "config.toml.tmp";
constexpr char kLockFile[] = "lock";

// The topmost missing folder on the way to `path`; empty if all exist.
std::string FirstMissing(fs::path path) {
  std::error_code error;
  std::string missing;
  for (; !fs::exists(path, error); path = path.parent_path()) {
    missing = path.string();
    if (path == path.parent_path()) break;
  }
  return missing;
}

// True if the folder holds a run: a folder that merely has the run's name must not be removed. A
// run that was killed while starting has only the mark.
bool HoldsRun(Storage* storage) {
  return storage->Exists(kConfigFile) || storage->Exists(kStartingFile);
}

// Removes all files of a run except its lock.
Status RemoveRun(RunFolder* folder) {
  const bool holds_run = HoldsRun(folder->storage.get());
  TROOP_ASSIGN_OR_RETURN(auto names, folder->storage->List(""));
  // The config goes last, so that an interrupted removal can be repeated.
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& n) { return !n.starts_with(kConfigFile); });
  for (std::string name : names) {
    if (name == kLockFile) continue;
    if (!holds_run) {
      return AlreadyExists(
          "{} holds files that are not a run (no config.toml), which --overwrite does not remove; "
          "choose another name (name=…)",
          folder->path);
    }
    if (name.ends_with('/')) name.pop_back();
    TROOP_RETURN_IF_ERROR(folder->storage->Remove(name));
  }
  return Status::Ok();
}

// Removes what a run left that was killed before BeginRun: its metrics must not become those of the
// new one. Only names of such a run, because the folder may hold foreign files, too.
Status RemoveStart(Storage* storage) {
  if (!storage->Exists(kStartingFile)) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const auto names, storage->List(""));
  for (const std::string& name : names) {
    const bool metrics = name == "metrics.jsonl" || name == "evaluations.jsonl" ||
                         name.starts_with("events.out.tfevents.");
    if (metrics) TROOP_RETURN_IF_ERROR(storage->Remove(name));
  }
  return storage->Remove(kStartingFile);
}

// True if the process that the lock file names has exited.
bool HolderIsGone(Storage* storage) {
  const Result<Buffer> holder = storage->Read(kLockFile, 64);
  long process = 0;
  return holder.ok() && std::sscanf(std::string(holder->text()).c_str(), "process %ld", &process) &&
         process > 0 && kill(pid_t(process), 0) != 0 && errno == ESRCH;
}

}  // namespace

// Another holder that is alive is an error at once.
Result<std::unique_ptr<StorageLock>> LockRun(Storage* storage) {
  const std::string holder = fmt::format("process {}", getpid());
  Result<std::unique_ptr<StorageLock>> lock = storage->Lock(kLockFile, holder);
  for (int i = 0; i < 100 && !lock.ok() && HolderIsGone(storage); ++i) {
    usleep(10'000);
    lock = storage->Lock(kLockFile, holder);
  }
  return lock;
}

std::string RunPath(const Config& config) {
  std::error_code error;
  const fs::path path = fs::absolute(fs::path(config.log.dir) / config.name, error);
  return path.lexically_normal().string();
}

Result<RunFolder> OpenRunFolder(const Config& config, FolderUse use) {
  RunFolder folder{.path = RunPath(config), .config = config};
  // Roles may have another working directory: the resolved config names the folder absolutely.
  folder.config.log.dir = fs::path(folder.path).parent_path().string();
  if (use == FolderUse::kResume && !fs::exists(folder.path)) {
    return NotFound("{}: no such run", folder.path);
  }
  folder.made = FirstMissing(folder.path);
  TROOP_ASSIGN_OR_RETURN(folder.storage, MakeDiskStorage(folder.path));
  Result<std::unique_ptr<StorageLock>> lock = LockRun(folder.storage.get());
  if (!lock.ok() && lock.status().code() != Code::kAlreadyExists) {
    return InvalidArgument(
        "{}: the run folder is not writable ({}); make it writable, or choose another: log.dir=…",
        folder.path, lock.status().message());
  }
  if (!lock.ok()) {
    return AlreadyExists("{} is in use ({}); {}", folder.path, lock.status().message(),
                         use == FolderUse::kResume ? "wait until it ends"
                                                   : "wait, or give this run another name: name=…");
  }
  folder.lock = std::move(*lock);
  // Checked under the lock, so that the answer stays valid.
  const bool holds_run = folder.storage->Exists(kConfigFile);
  if (use == FolderUse::kFresh && holds_run) {
    const std::string resume = CanResume(folder.storage.get())
                                   ? fmt::format("resume it with `troop resume {}`, ", folder.path)
                                   : "";
    return AlreadyExists(
        "{} already holds a run: {}choose another name (name=…), or replace it with --overwrite",
        folder.path, resume);
  }
  if (use == FolderUse::kOverwrite) TROOP_RETURN_IF_ERROR(RemoveRun(&folder));
  if (use == FolderUse::kFresh) TROOP_RETURN_IF_ERROR(RemoveStart(folder.storage.get()));
  return folder;
}

// With foreign files there is no mark: --overwrite must never remove them.
Status MarkStarting(const RunFolder& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto names, folder.storage->List(""));
  if (std::ranges::any_of(names, [](const std::string& name) { return name != kLockFile; }))
    return Status::Ok();
  return folder.storage->OpenAppend(kStartingFile).status();
}

void RemoveUnbegun(const RunFolder& folder) {
  if (folder.storage->Exists(kConfigFile)) return;
  // A folder that existed before stays, with the files that were in it.
  (void)folder.storage->Remove(kStartingFile).ok();
  if (folder.made.empty()) return;
  std::error_code error;
  fs::remove_all(folder.path, error);
  // Parents are removed only if they are empty: another run may have started there.
  for (fs::path above = fs::path(folder.path).parent_path();
       above.string().starts_with(folder.made) && fs::remove(above, error);) {
    above = above.parent_path();
  }
}

// The old result goes first, because a crash must not leave it next to the new config.
Status BeginRun(const RunFolder& folder) {
  TROOP_RETURN_IF_ERROR(folder.storage->Remove("result.json"));
  TROOP_RETURN_IF_ERROR(folder.storage->WriteAtomic(kConfigFile, ToToml(folder.config)));
  return folder.storage->WriteAtomic("logs/README", "One file per role.\n");
}

Result<Config> ReadRunConfig(const std::string& path, std::span<const std::string> overrides) {
  if (!fs::exists(fs::path(path) / "config.toml")) {
    return NotFound("{}: no run here (no config.toml)", path);
  }
  const std::string file = (fs::path(path) / "config.toml").string();
  std::vector<std::string> keys(overrides.begin(), overrides.end());
  const auto given = [&](std::string_view key) {
    return std::ranges::any_of(keys, [&](const std::string& k) { return k.starts_with(key); });
  };
  // The stored fleet.learners was derived from the stored mesh; a new mesh must derive it again.
  if ((given("mesh.dp=") || given("mesh.tp=") || given("mesh.pp=")) && !given("fleet.learners=")) {
    TROOP_ASSIGN_OR_RETURN(const Config was, LoadSavedConfigFile(file, {}));
    if (was.mesh.dp > 0) keys.emplace_back("fleet.learners=1");
  }
  // Likewise max_updates was derived from the epochs.
  if (given("run.epochs=") && !given("run.max_updates=")) {
    keys.emplace_back("run.max_updates=0");
  }
  TROOP_ASSIGN_OR_RETURN(Config config, LoadSavedConfigFile(file, keys));
  // The folder may have been moved since: the config takes its present place.
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path trimmed = absolute.has_filename() ? absolute : absolute.parent_path();
  config.log.dir = trimmed.parent_path().string();
  config.name = trimmed.filename().string();
  return config;
}

}  // namespace troop
