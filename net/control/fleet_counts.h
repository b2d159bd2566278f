#pragma once

#include <cstdint>

namespace troop {

// Current numbers of the roles that `troop scale` changes. Replay shards below `replay` accept new
// items; the `replay_leaving` shards after them are only sampled from.
struct FleetCounts {
  std::uint64_t epoch = 0;  // increases with each change; 0: not received yet
  std::int32_t learners = 0, replay = 0, replay_leaving = 0;
  template <class A>
  void serialize(A& a) {
    a(epoch, learners, replay, replay_leaving);
  }
  bool operator==(const FleetCounts&) const = default;
};

}  // namespace troop
