#pragma once

#include <string>

namespace troop {

// Answer to the status request of `troop status`, which has no body.
struct StatusReply {
  std::string json;  // parsed and shown by `troop status`
  template <class A>
  void serialize(A& a) {
    a(json);
  }
};

}  // namespace troop
