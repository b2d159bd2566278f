#pragma once

// Bodies of the messages between actors and inference servers (docs/design/protocol.md).

#include <cstdint>
#include <type_traits>

#include "actors/policy.h"

namespace troop {

// kInfer has no body. Part 0: observations [n, ...NetworkInput]; part 1: n ExploreKeys in memory
// layout.
static_assert(std::is_trivially_copyable_v<ExploreKey> && sizeof(ExploreKey) == 40);

// kInferReply. Parts as in PolicyOutput: action, q, q_taken, q_max of the n observations.
struct InferReplyBody {
  std::uint64_t version = 0;
  template <class A>
  void serialize(A& a) {
    a(version);
  }
};

}  // namespace troop
