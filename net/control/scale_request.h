#pragma once

#include <cstdint>
#include <string>

namespace troop {

// Sent by `troop scale`. Answered when the change is complete or was aborted.
struct ScaleRequest {
  std::string role;  // "paramserver", "actors", "replay", "learners"
  std::int64_t count = 0;
  template <class A>
  void serialize(A& a) {
    a(role, count);
  }
};
struct ScaleReply {
  std::int64_t before = 0, after = 0;
  std::uint64_t epoch = 0;                            // epoch of the shard map, or of FleetCounts
  std::int64_t parameters = 0, parameters_moved = 0;  // parameter servers only
  double seconds = 0;                                 // duration of the request
  template <class A>
  void serialize(A& a) {
    a(before, after, epoch, parameters, parameters_moved, seconds);
  }
};

}  // namespace troop
