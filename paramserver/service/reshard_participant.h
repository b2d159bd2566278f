#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "core/base/buffer.h"
#include "core/base/node.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "net/control/fleet_member.h"
#include "net/network.h"
#include "paramserver/replication/shard_backup.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/resharding/reshard_receiver.h"
#include "paramserver/service/shard_layout.h"
#include "paramserver/service/shard_server.h"

namespace troop {

// A parameter server process's part in a resharding (ReshardController): pauses its shard, hands
// over the ranges that leave it, and builds the shard that it will serve in the next epoch.
// Invariants: 1. Ranges are handed over only while the shard is paused, so all pieces are of one
// state. 2. A shard of the next map is reported as ready only when it is on disk. 3. If the
// coordinator cancels the resharding, everything received is dropped. Owner: the node's thread; it
// must keep the participant until preparing() is false. Memory: the ranges in transfer, and the
// shard that is built.
class ReshardParticipant {
 public:
  // All pointers must outlive the participant.
  struct Context {
    Network* network = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;
    Storage* run = nullptr;
    const ShardLayout* layout = nullptr;
  };
  explicit ReshardParticipant(const Context& context) : context_(context) {}

  // Follows the coordinator's stage. `server`: of this process if it is the primary; null
  // otherwise. Call once per step. A failure ends only the participation: the coordinator's
  // time limit then cancels the resharding.
  void Follow(Time now, ShardServer* server);
  // Reports the prepared shard to the coordinator once its job has ended. Returns true in that
  // call.
  bool CollectPrepared();
  // Answers kShardFetch: one piece of the snapshot of the ranges that move to another shard.
  // Errors: kUnavailable: not paused for this resharding; kInvalidArgument: the caller, the target
  // or the offset is invalid; kDataLoss: damaged.
  Result<Message> Fetch(const Message& message, ShardServer* server);
  // Takes the shard that was built in resharding `move`; nullopt: there is none.
  std::optional<ShardReplica> TakeSuccessor(std::uint64_t move);

  bool preparing() const { return prepare_ != nullptr; }  // a job uses the layout
  std::int64_t moved_bytes() const { return moved_bytes_; }

 private:
  // The shard of the next map.
  struct Successor {
    std::uint64_t move = 0;
    ShardReplica state;
  };
  struct PrepareJob {
    Executor::Job id = 0;
    std::uint64_t move = 0;
    ShardSnapshots snapshots;
    Status status;
  };
  void DropTransfers();
  Status StartReceiver(const ShardServer* server);
  Status FinishReceiver(ShardServer* server);
  const Buffer& OutgoingState(std::int32_t target, ShardServer* server);

  const Context context_;
  std::uint64_t move_ = 0;            // number of the resharding last taken part in
  std::optional<ShardMap> next_map_;  // of resharding move_; nullopt: none in progress
  std::unique_ptr<ReshardReceiver> receiver_;
  std::unique_ptr<PrepareJob> prepare_;  // its address is known to the executor's thread
  std::optional<Successor> successor_;
  std::map<std::int32_t, Buffer> outgoing_;  // snapshots to hand over, by target shard
  std::int64_t moved_bytes_ = 0;             // received
};

}  // namespace troop
