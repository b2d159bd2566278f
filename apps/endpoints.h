#pragma once

#include <memory>
#include <string>

#include "core/config.h"
#include "core/status.h"
#include "core/storage.h"
#include "net/message.h"

namespace troop {

// Where the roles of one run on this machine bind. ipc: sockets in a private folder (0700) with a
// short name, since a socket's path may have 107 bytes only; removed with this object, or by a
// later run's when this process was killed. tcp: the loopback address with ports of the system's
// choice.
class Endpoints {
 public:
  static Result<std::unique_ptr<Endpoints>> Make(const Config& config);
  ~Endpoints();
  std::string For(Role role, std::int32_t index) const;
  // The same for people, of a run that does not exist yet: XXXXXX and PORT are chosen at its start.
  static std::string PatternFor(const Config& config, Role role, std::int32_t index);
  const std::string& folder() const { return folder_; }

 private:
  Endpoints() = default;
  bool ipc_ = true;
  std::string folder_;
  std::unique_ptr<StorageLock> lock_;  // says that the folder has an owner
};

}  // namespace troop
