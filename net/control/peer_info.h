#pragma once

#include <cstdint>
#include <string>

#include "net/message.h"

namespace troop {

// Address and incarnation of a role that serves others.
struct PeerInfo {
  std::string endpoint;  // empty: no service, or not bound yet
  std::uint64_t incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(endpoint, incarnation);
  }
};
// Returns the name of a role's process: "actor-3".
std::string PeerName(Role role, std::int32_t index);

}  // namespace troop
