// Implements the names of peers.
#include "net/control/peer_info.h"

#include <fmt/format.h>

namespace troop {

std::string PeerName(Role role, std::int32_t index) {
  return fmt::format("{}-{}", RoleName(role), index);
}

}  // namespace troop
