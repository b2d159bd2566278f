#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"
#include "net/message.h"
#include "net/security/keys.h"

namespace troop {

// The bind addresses of the roles of one run on this machine:
// - with fleet.listen: TCP addresses that other machines can reach;
// - else with fleet.transport = "ipc": sockets in a private folder (mode 0700). Its name is short,
//   since a socket path is limited to 107 bytes. The folder is removed with this object, or by a
//   later run if this process was killed;
// - else loopback TCP with ports that the system chooses.
class Endpoints {
 public:
  // Makes the socket folder if one is needed. Errors: kInvalidArgument: an invalid address, or one
  // that needs keys.
  static Result<std::unique_ptr<Endpoints>> Make(const Config& config);
  // Checks a config without creating files. Errors: kInvalidArgument: those of Make; TMPDIR is not
  // writable, or too long for a socket path.
  static Status Check(const Config& config);
  ~Endpoints();
  // The bind address of a role.
  std::string For(Role role, std::int32_t index) const;
  // The bind address before the run exists, for display: XXXXXX and PORT are chosen at its start.
  static std::string PatternFor(const Config& config, Role role, std::int32_t index);
  const std::string& folder() const { return folder_; }

 private:
  explicit Endpoints(const Config& config) : config_(config) {}
  const Config config_;
  std::string folder_;
  std::unique_ptr<StorageLock> lock_;  // marks the folder as in use
};

// The keys of a role from security.keys or from a file; null if the config has none. Errors: those
// of LoadKeys; kInvalidArgument: the file holds another role's key.
Result<std::shared_ptr<const KeyRing>> KeysFor(const Config& config, Role role);
Result<std::shared_ptr<const KeyRing>> KeysFromFile(const std::string& file, Role role);

}  // namespace troop
