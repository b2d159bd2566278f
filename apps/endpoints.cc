#include "apps/endpoints.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>

#include "net/control.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
// Of these folders alone: what has this name and no owner was left between two steps.
constexpr char kPrefix[] = "troop-run-";

std::string SocketIn(const std::string& folder, Role role, std::int32_t index) {
  return fmt::format("ipc://{}/{}.sock", folder, PeerName(role, index));
}

// Takes the lock that says whose folder this is. Errors: kAlreadyExists: its owner lives.
Result<std::unique_ptr<StorageLock>> LockFolder(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder));
  return storage->Lock("owner", fmt::format("process {}", getpid()));
}

// Removes the folders of launchers that were killed. Young ones may not be locked yet.
void RemoveAbandoned(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    struct stat info {};
    const bool mine = lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == geteuid() && time(nullptr) - info.st_mtime > 60;
    std::error_code ignored;
    if (!mine || !LockFolder(path).ok()) continue;
    fs::remove_all(it->path(), ignored);
  }
}

}  // namespace

Result<std::unique_ptr<Endpoints>> Endpoints::Make(const Config& config) {
  std::unique_ptr<Endpoints> endpoints(new Endpoints);
  endpoints->ipc_ = config.fleet.transport == "ipc";
  if (!endpoints->ipc_) return endpoints;
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  RemoveAbandoned(parent);
  std::string folder = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(folder.data()) == nullptr) {  // creates it 0700
    return Unavailable(
        "no folder for sockets can be made at {}: {}; set TMPDIR, or use "
        "fleet.transport=tcp",
        folder, strerror(errno));
  }
  endpoints->folder_ = folder;
  TROOP_ASSIGN_OR_RETURN(endpoints->lock_, LockFolder(folder));
  return endpoints;
}

Endpoints::~Endpoints() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string Endpoints::For(Role role, std::int32_t index) const {
  return ipc_ ? SocketIn(folder_, role, index) : "tcp://127.0.0.1:0";
}

std::string Endpoints::PatternFor(const Config& config, Role role, std::int32_t index) {
  if (config.fleet.transport != "ipc") return "tcp://127.0.0.1:PORT";
  std::error_code ignored;
  const fs::path folder = fs::temp_directory_path(ignored) / (std::string(kPrefix) + "XXXXXX");
  return SocketIn(folder.string(), role, index);
}

}  // namespace troop
