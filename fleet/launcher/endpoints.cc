// Bind addresses of roles: socket folders, TCP addresses and their checks.
#include "fleet/launcher/endpoints.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/failures.h"
#include "fleet/serial/serial_fleet.h"
#include "net/control/peer_info.h"
#include "net/transport/endpoint.h"
#include "net/transport/host_name.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
// Prefix of socket folders. RemoveAbandoned deletes only folders with it.
constexpr char kPrefix[] = "troop-run-";

std::string SocketIn(const std::string& folder, Role role, std::int32_t index) {
  return fmt::format("ipc://{}/{}.sock", folder, PeerName(role, index));
}

// Takes the owner lock of a socket folder. Errors: kAlreadyExists: its owner is alive.
Result<std::unique_ptr<StorageLock>> LockFolder(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder));
  return storage->Lock("owner", fmt::format("process {}", getpid()));
}

// Removes socket folders of killed launchers. Folders younger than 60 s may not be locked yet.
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

// The bind address with fleet.listen. Shard k of a service uses the configured port + k; without
// a port the system chooses one. The host ends at the last ':'.
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

// Checks the listen addresses of the config and reports all failures. look_up: also resolves the
// host names, which blocks on DNS.
Status CheckListen(const Config& config, bool look_up) {
  const auto& fleet = config.fleet;
  const bool keys = !config.security.keys.empty();
  Failures failures;
  const auto check = [&](const char* key, const std::string& first, std::int32_t count) {
    if (first.empty()) return;
    const Result<Endpoint> endpoint = ParseEndpoint(first);
    failures.Add(CheckMayListen(first, keys, config.security.insecure).WithContext(key));
    if (!endpoint.ok()) return;
    if (look_up) failures.Add(CheckHostResolves(first).WithContext(key));
    if (endpoint->port + count - 1 > 65535) {
      failures.Add(
          InvalidArgument("{} is {}: {} shards need ports up to {}, must be at most "
                          "65535; use a lower port",
                          key, first, count, endpoint->port + count - 1));
    }
  };
  check("fleet.listen", fleet.listen, 1);
  check("fleet.listen_replay", fleet.listen_replay, config.replay.shards);
  check("fleet.listen_paramserver", fleet.listen_paramserver, config.paramserver.shards);
  return failures.status();
}

// Checks that TMPDIR is a writable folder whose socket paths fit into 107 bytes.
Status CheckSocketFolder(const Config& config) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) {
    const char* const given = getenv("TMPDIR");
    return InvalidArgument("TMPDIR is \"{}\", which is not a folder; sockets are created there",
                           given ? given : "");
  }
  if (access(parent.c_str(), W_OK | X_OK) != 0) {
    return InvalidArgument("TMPDIR is \"{}\", which is not writable: {}; sockets are created there",
                           parent.string(), strerror(errno));
  }
  std::vector<FleetRole> roles = RolesOf(config);
  roles.push_back({Role::kCoordinator, 0});
  for (const FleetRole& role : roles) {
    if (ParseEndpoint(Endpoints::PatternFor(config, role.role, role.index)).ok()) continue;
    return InvalidArgument(
        "TMPDIR is \"{}\", which is too long: socket paths in it exceed 107 bytes; set TMPDIR to a "
        "shorter path, such as /tmp, or use fleet.transport=tcp",
        parent.string());
  }
  return Status::Ok();
}

}  // namespace

// Serial mode has in-process endpoints only.
Status Endpoints::Check(const Config& config) {
  if (config.fleet.mode == FleetMode::kSerial) return Status::Ok();
  if (!config.fleet.listen.empty()) return CheckListen(config, true);
  return config.fleet.transport == FleetTransport::kIpc ? CheckSocketFolder(config) : Status::Ok();
}

// The lock file in the folder shows later runs that its owner is alive.
Result<std::unique_ptr<Endpoints>> Endpoints::Make(const Config& config) {
  std::unique_ptr<Endpoints> endpoints(new Endpoints(config));
  if (!config.fleet.listen.empty()) {
    TROOP_RETURN_IF_ERROR(CheckListen(config, false));
    return endpoints;
  }
  if (config.fleet.transport != FleetTransport::kIpc) return endpoints;
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  RemoveAbandoned(parent);
  std::string folder = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(folder.data()) == nullptr) {  // creates it 0700
    return Unavailable(
        "can't create the socket folder {}: {}; set TMPDIR, or use fleet.transport=tcp", folder,
        strerror(errno));
  }
  endpoints->folder_ = folder;
  TROOP_ASSIGN_OR_RETURN(endpoints->lock_, LockFolder(folder));
  return endpoints;
}

// The lock is a member, so it is released after the folder is gone.
Endpoints::~Endpoints() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string Endpoints::For(Role role, std::int32_t index) const {
  if (!config_.fleet.listen.empty()) return ListenFor(config_, role, index);
  // With fleet.transport = "tcp" the system chooses a loopback port.
  return folder_.empty() ? "tcp://127.0.0.1:0" : SocketIn(folder_, role, index);
}

// Used before a run exists: by `--dry-run` and for the length check of socket paths.
std::string Endpoints::PatternFor(const Config& config, Role role, std::int32_t index) {
  if (!config.fleet.listen.empty()) return ListenFor(config, role, index);
  if (config.fleet.transport != FleetTransport::kIpc) return "tcp://127.0.0.1:PORT";
  std::error_code ignored;
  const fs::path folder = fs::temp_directory_path(ignored) / (std::string(kPrefix) + "XXXXXX");
  return SocketIn(folder.string(), role, index);
}

// The role of a key determines its permissions: with another key the first call would fail.
Result<std::shared_ptr<const KeyRing>> KeysFromFile(const std::string& file, Role role) {
  TROOP_ASSIGN_OR_RETURN(auto keys, LoadKeys(file));
  if (keys->role == role) return keys;
  return InvalidArgument("{} is a key of the role {}, must be of {}", file, RoleName(keys->role),
                         RoleName(role));
}

// Without security.keys, connections are not encrypted.
Result<std::shared_ptr<const KeyRing>> KeysFor(const Config& config, Role role) {
  if (config.security.keys.empty()) return std::shared_ptr<const KeyRing>();
  return KeysFromFile(KeyFileOf(config.security.keys, role), role);
}

}  // namespace troop
