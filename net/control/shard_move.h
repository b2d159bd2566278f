#pragma once

#include <cstdint>

namespace troop {

// One epoch of the shard map: the number of shards, which are counted from 0, and the move that
// began the epoch. The first epoch has the config's number. All maps follow from these values alone
// (ShardMapAfter).
struct ShardEpoch {
  std::int32_t shards = 0;
  std::uint64_t move = 0;  // 0: the initial epoch
  template <class A>
  void serialize(A& a) {
    a(shards, move);
  }
  bool operator==(const ShardEpoch&) const = default;
};
// Stages of resharding, in order.
enum class ShardMoveStage : std::uint8_t {
  kGathering = 0,    // waits for new shards
  kPausing = 1,      // learners finish open calls and pause
  kHandingOver = 2,  // shards accept no pushes and fetch their new ranges
};
// A resharding in progress (paramserver/resharding/reshard_controller.h).
struct ShardMove {
  std::uint64_t number = 0;  // never reused; 0: no move in progress
  std::int32_t shards = 0;
  ShardMoveStage stage = ShardMoveStage::kGathering;
  template <class A>
  void serialize(A& a) {
    a(number, shards, stage);
  }
  bool operator==(const ShardMove&) const = default;
};

}  // namespace troop
