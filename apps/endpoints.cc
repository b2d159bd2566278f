#include "apps/endpoints.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "apps/failures.h"
#include "apps/serial_fleet.h"
#include "net/control.h"
#include "net/endpoint.h"
#include "net/host_name.h"

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

// Of a run that others can join. The last ':' ends the host.
std::string ListenFor(const Config& config, Role role, std::int32_t index) {
  std::string first;
  if (role == Role::kReplay) first = config.fleet.listen_replay;
  if (role == Role::kParamServer) first = config.fleet.listen_paramserver;
  const std::string& all = config.fleet.listen;
  if (role == Role::kCoordinator) return all;
  if (first.empty()) return all.substr(0, all.rfind(':')) + ":0";
  const Result<Endpoint> parsed = ParseEndpoint(first);
  const int port = !parsed.ok() || parsed->port == 0 ? 0 : parsed->port + index;
  return fmt::format("{}:{}", first.substr(0, first.rfind(':')), port);
}

// All that is wrong with where the run listens. look_up: also names without an address; it blocks
// on the name server.
Status CheckListen(const Config& config, bool look_up) {
  const auto& fleet = config.fleet;
  const bool keys = !config.security.keys.empty();
  Failures failures;
  const auto check = [&](const char* key, const std::string& first, std::int32_t count) {
    if (first.empty()) return;
    const Result<Endpoint> endpoint = ParseEndpoint(first);
    failures.Add(CheckMayListen(first, keys, config.security.insecure).WithContext(key));
    if (!endpoint.ok()) return;
    if (look_up) failures.Add(FindHost(first).WithContext(key));
    if (endpoint->port + count - 1 > 65535) {
      failures.Add(InvalidArgument("{}: {}: {} of them would need ports up to {}; begin lower", key,
                                   first, count, endpoint->port + count - 1));
    }
  };
  check("fleet.listen", fleet.listen, 1);
  check("fleet.listen_replay", fleet.listen_replay, config.replay.shards);
  check("fleet.listen_paramserver", fleet.listen_paramserver, config.paramserver.shards);
  return failures.status();
}

// That sockets can be made in the folder of temporary files.
Status CheckSocketFolder(const Config& config) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) {
    const char* const given = getenv("TMPDIR");
    return InvalidArgument("TMPDIR = \"{}\" is no folder; sockets are made in it",
                           given ? given : "");
  }
  if (access(parent.c_str(), W_OK | X_OK) != 0) {
    return InvalidArgument("TMPDIR = \"{}\" can't be written: {}; sockets are made in it",
                           parent.string(), strerror(errno));
  }
  std::vector<FleetRole> roles = RolesOf(config);
  roles.push_back({Role::kCoordinator, 0});
  for (const FleetRole& role : roles) {
    if (ParseEndpoint(Endpoints::PatternFor(config, role.role, role.index)).ok()) continue;
    return InvalidArgument(
        "TMPDIR = \"{}\" is too long: the path of a socket in it has more than 107 bytes; set "
        "TMPDIR "
        "to a shorter folder, such as /tmp, or use fleet.transport=tcp",
        parent.string());
  }
  return Status::Ok();
}

}  // namespace

Status Endpoints::Check(const Config& config) {
  if (config.fleet.mode == "serial") return Status::Ok();
  if (!config.fleet.listen.empty()) return CheckListen(config, true);
  return config.fleet.transport == "ipc" ? CheckSocketFolder(config) : Status::Ok();
}

Result<std::unique_ptr<Endpoints>> Endpoints::Make(const Config& config) {
  std::unique_ptr<Endpoints> endpoints(new Endpoints(config));
  if (!config.fleet.listen.empty()) {
    TROOP_RETURN_IF_ERROR(CheckListen(config, false));
    return endpoints;
  }
  if (config.fleet.transport != "ipc") return endpoints;
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
  if (!config_.fleet.listen.empty()) return ListenFor(config_, role, index);
  return folder_.empty() ? "tcp://127.0.0.1:0" : SocketIn(folder_, role, index);
}

std::string Endpoints::PatternFor(const Config& config, Role role, std::int32_t index) {
  if (!config.fleet.listen.empty()) return ListenFor(config, role, index);
  if (config.fleet.transport != "ipc") return "tcp://127.0.0.1:PORT";
  std::error_code ignored;
  const fs::path folder = fs::temp_directory_path(ignored) / (std::string(kPrefix) + "XXXXXX");
  return SocketIn(folder.string(), role, index);
}

Result<std::shared_ptr<const KeyRing>> KeysFromFile(const std::string& file, Role role) {
  TROOP_ASSIGN_OR_RETURN(auto keys, LoadKeys(file));
  if (keys->role == role) return keys;
  return InvalidArgument("{} is a key of the role {}, not {}", file, RoleName(keys->role),
                         RoleName(role));
}

Result<std::shared_ptr<const KeyRing>> KeysFor(const Config& config, Role role) {
  if (config.security.keys.empty()) return std::shared_ptr<const KeyRing>();
  return KeysFromFile(KeyFileOf(config.security.keys, role), role);
}

}  // namespace troop
