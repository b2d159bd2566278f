#pragma once

#include <memory>
#include <string>

#include "core/config.h"
#include "core/status.h"
#include "core/storage.h"
#include "net/keys.h"
#include "net/message.h"

namespace troop {

// Where the roles of one run on this machine bind. With fleet.listen: TCP addresses that other
// machines reach. Else ipc: sockets in a private folder (0700) with a
// short name, since a socket's path may have 107 bytes only; removed with this object, or by a
// later run's when this process was killed; or tcp: the loopback address with ports of the system's
// choice.
class Endpoints {
 public:
  // Errors: kInvalidArgument: an address of the config, or none may be listened on without keys.
  static Result<std::unique_ptr<Endpoints>> Make(const Config& config);
  // Before a run, without a trace. Errors: kInvalidArgument: those of Make; TMPDIR is no folder
  // that can be written, or too long for the path of a socket.
  static Status Check(const Config& config);
  ~Endpoints();
  std::string For(Role role, std::int32_t index) const;
  // The same for people, of a run that does not exist yet: XXXXXX and PORT are chosen at its start.
  static std::string PatternFor(const Config& config, Role role, std::int32_t index);
  const std::string& folder() const { return folder_; }

 private:
  explicit Endpoints(const Config& config) : config_(config) {}
  const Config config_;
  std::string folder_;
  std::unique_ptr<StorageLock> lock_;  // says that the folder has an owner
};

// The keys with which a process of a run of this config plays a role; null: it has none. Errors: as
// LoadKeys; kInvalidArgument: the file holds another role's key.
Result<std::shared_ptr<const KeyRing>> KeysFor(const Config& config, Role role);
Result<std::shared_ptr<const KeyRing>> KeysFromFile(const std::string& file, Role role);

}  // namespace troop
