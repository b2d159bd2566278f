#pragma once

#include <cstdint>
#include <string>

#include "net/message.h"

namespace troop {

// Sent by `troop join` before it starts processes, to ask if `count` members of a role may join.
struct JoinRequest {
  Role role = Role::kNone;
  std::int32_t count = 0;
  std::string version;  // of the program
  std::string host;
  template <class A>
  void serialize(A& a) {
    a(role, count, version, host);
  }
};
struct JoinReply {
  std::string config_toml;   // resolved
  std::int32_t present = 0;  // current members of that role
  template <class A>
  void serialize(A& a) {
    a(config_toml, present);
  }
};

}  // namespace troop
