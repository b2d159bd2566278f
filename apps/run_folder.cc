#include "apps/run_folder.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/standing.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
constexpr char kConfigFile[] = "config.toml";
constexpr char kLockFile[] = "lock";

// The topmost of the folders on the way to `path` that is not there; empty: all are.
std::string FirstMissing(fs::path path) {
  std::error_code error;
  std::string missing;
  for (; !fs::exists(path, error); path = path.parent_path()) {
    missing = path.string();
    if (path == path.parent_path()) break;
  }
  return missing;
}

// Somebody's folder that only has the name of a run is not ours to remove. A run that was killed
// while it began has its config under a temporary name.
bool HoldsRun(Storage* storage) {
  return storage->Exists(kConfigFile) || storage->Exists(std::string(kConfigFile) + ".tmp");
}

Status RemoveRun(RunFolder* folder) {
  const bool holds_run = HoldsRun(folder->storage.get());
  TROOP_ASSIGN_OR_RETURN(auto names, folder->storage->List(""));
  // The config last: a process that is killed on the way leaves what can be removed again.
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& n) { return !n.starts_with(kConfigFile); });
  for (std::string name : names) {
    if (name == kLockFile) continue;
    if (!holds_run) {
      return AlreadyExists(
          "{} holds files but no run (no config.toml): --overwrite leaves them alone; "
          "choose another name (name=…)",
          folder->path);
    }
    if (name.ends_with('/')) name.pop_back();
    TROOP_RETURN_IF_ERROR(folder->storage->Remove(name));
  }
  return Status::Ok();
}

bool HolderIsGone(Storage* storage) {
  const Result<Buffer> holder = storage->Read(kLockFile, 64);
  long process = 0;
  return holder.ok() && std::sscanf(std::string(holder->text()).c_str(), "process %ld", &process) &&
         process > 0 && kill(pid_t(process), 0) != 0 && errno == ESRCH;
}

// The lock of a launcher that was killed while it started a role outlives it for a moment, in a
// child that has not become the role yet: waits for that one, a second at most.
Result<std::unique_ptr<StorageLock>> LockRun(Storage* storage) {
  const std::string holder = fmt::format("process {}", getpid());
  Result<std::unique_ptr<StorageLock>> lock = storage->Lock(kLockFile, holder);
  for (int i = 0; i < 100 && !lock.ok() && HolderIsGone(storage); ++i) {
    usleep(10'000);
    lock = storage->Lock(kLockFile, holder);
  }
  return lock;
}

}  // namespace

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
        "{}: the run's folder can't be written ({}); make it writable, or choose another: "
        "log.dir=…",
        folder.path, lock.status().message());
  }
  if (!lock.ok()) {
    return AlreadyExists("{} is in use ({}); wait for it, or give this run another name: name=…",
                         folder.path, lock.status().message());
  }
  folder.lock = std::move(*lock);
  const bool holds_run = folder.storage->Exists(kConfigFile);
  if (use == FolderUse::kFresh && holds_run) {
    const std::string resume = CanGoOn(folder.storage.get())
                                   ? fmt::format("go on with `troop resume {}`, ", folder.path)
                                   : "";
    return AlreadyExists(
        "{} holds a run already: {}choose another name (name=…), or replace it with --overwrite",
        folder.path, resume);
  }
  if (use == FolderUse::kOverwrite) TROOP_RETURN_IF_ERROR(RemoveRun(&folder));
  return folder;
}

void RemoveUnbegun(const RunFolder& folder) {
  if (folder.made.empty() || folder.storage->Exists(kConfigFile)) return;
  std::error_code error;
  fs::remove_all(folder.path, error);
  // Those above it only where they are empty: another run may have begun there.
  for (fs::path above = fs::path(folder.path).parent_path();
       above.string().starts_with(folder.made) && fs::remove(above, error);) {
    above = above.parent_path();
  }
}

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
  // How many learners there were follows from the mesh that was: another one has its own.
  if ((given("mesh.dp=") || given("mesh.tp=")) && !given("fleet.learners=")) {
    TROOP_ASSIGN_OR_RETURN(const Config was, LoadConfigFile(file, {}));
    if (was.mesh.dp > 0) keys.emplace_back("fleet.learners=1");
  }
  // The folder has the updates that its epochs made: other epochs make another number of them.
  if (given("learner.epochs=") && !given("learner.max_updates=")) {
    keys.emplace_back("learner.max_updates=0");
  }
  TROOP_ASSIGN_OR_RETURN(Config config, LoadConfigFile(file, keys));
  // The folder may have been moved since.
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path trimmed = absolute.has_filename() ? absolute : absolute.parent_path();
  config.log.dir = trimmed.parent_path().string();
  config.name = trimmed.filename().string();
  return config;
}

}  // namespace troop
