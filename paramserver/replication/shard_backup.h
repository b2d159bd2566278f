#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "net/control/shard_term.h"
#include "net/network.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/replication/backup_client.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// The whole state of a shard that a process can begin to serve, and the lineage of its versions.
struct ShardReplica {
  std::unique_ptr<ParameterShard> shard;
  std::uint64_t lineage = 0;  // ShardPullReplyBody::lineage
};

// The backup's part of replication: restores the primary's state and repeats each update.
// Invariants: 1. A message is accepted only under a term that the coordinator has assigned, and
// from the primary of that term. 2. Terms never decrease. 3. An update is applied only on top of
// the state of that term. Owner: the node's thread. Cost: O(n) for the last piece of a state and
// for each update.
class ShardBackup {
 public:
  struct Options {
    std::int32_t index = 0;  // of this process
    std::int32_t shard = 0;
    std::int32_t servers_per_shard = 1;
  };
  // The coordinator's assignment, as last received by heartbeat.
  struct Assignment {
    ShardTerm term;
    // True if this process may follow a primary: it does not serve or load the shard itself, and it
    // has adopted the newest epoch.
    bool may_follow = false;
  };

  explicit ShardBackup(const Options& options) : options_(options) {}

  // Discards everything and prepares for the shard of a new epoch. `bytes_max`: limit of a state.
  void BeginEpoch(const ParameterShard::Options& shard, std::size_t bytes_max);
  // Handles kShardState or kShardUpdate. Returns the term whose whole state has arrived with this
  // message; 0: none. Errors: kUnavailable: the term has not arrived here yet, the primary retries
  // (request a heartbeat then); kAborted: an older term; kInvalidArgument: not the primary;
  // kFailedPrecondition: the primary must send the state again; kDataLoss: damaged.
  Result<std::uint64_t> Handle(const Message& message, const Assignment& assignment);
  // Takes the replica that followed the primary of `term`; nullopt, and everything is discarded, if
  // there is none.
  std::optional<ShardReplica> TakeReplica(std::uint64_t term);
  // Discards the replica and the state in transfer.
  void Discard();

  // Rejects the primaries of older terms from now on.
  void ObserveTerm(std::uint64_t term) { newest_term_ = term; }
  std::uint64_t newest_term() const { return newest_term_; }
  const ParameterShard* replica() const { return replica_.shard.get(); }  // null: none

 private:
  Status CheckPrimary(const Origin& from, std::uint64_t term, const Assignment& assignment);
  Result<std::uint64_t> TakeState(const ShardStateBody& head, const Buffer& piece);
  Status TakeUpdate(ShardUpdateBody* body, const std::vector<Buffer>& parts);

  const Options options_;
  ParameterShard::Options shard_options_;
  std::optional<StateAssembler> assembler_;  // nullopt: before the first epoch
  ShardReplica replica_;
  std::uint64_t replica_term_ = 0;
  std::uint64_t newest_term_ = 0;
};

}  // namespace troop
