#pragma once

#include <cstdint>

#include "core/base/event_history.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "net/control/fleet_member.h"
#include "net/control/shard_term.h"
#include "net/network.h"
#include "paramserver/replication/shard_backup.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/service/shard_layout.h"
#include "paramserver/service/shard_saver.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard_config.h"

namespace troop {

// The primary's part of a shard, from the beginning of its service until another process serves the
// shard: answers learners and readers, replicates to the backup of the term, and saves the state.
// Invariants: 1. A primary without a backup answers only while it is in contact with the
// coordinator (PrimaryContactTimeoutFor). 2. The term is reported as held only after its backup, if
// any, is connected. Owner: the node's thread. Cost: O(n) for an update, a snapshot, and a new
// backup.
class ShardPrimary {
 public:
  // All pointers must outlive the primary; `history` may be null.
  struct Context {
    const ShardConfig* config = nullptr;
    Network* network = nullptr;
    FleetMember* member = nullptr;
    const ShardLayout* layout = nullptr;
    ShardSnapshots* snapshots = nullptr;
    ShardSaver* saver = nullptr;
    EventHistory* history = nullptr;
  };

  // Begins to serve `state` under `term`. `is_failover`: the state followed another primary, whose
  // learners continue here (ShardServer::Options).
  ShardPrimary(const Context& context, const ShardTerm& term, ShardReplica state, bool is_failover);

  // Continues under a newer term of the same primary, with another backup.
  void Adopt(const ShardTerm& term) { term_ = term; }
  // Connects the backup of the term, if that was not done yet, and reports the term as held. Does
  // nothing while the backup's endpoint is not known. Errors: as Network::Connect.
  Status ConnectBackup();
  // Runs the server, and saves its state if that is due.
  void Tick(Time now);
  // Starts the last save of the run, unless updates or another save are in progress; the shard then
  // begins no more updates.
  void SaveFinal();
  // Ends the service: waiting callers retry at the new primary.
  void StopServing();

  ShardServer& server() { return server_; }
  const ShardServer& server() const { return server_; }
  Time next_tick() const;

 private:
  void Save(bool final);

  const Context context_;
  ShardTerm term_;
  std::uint64_t connected_ = 0;  // term whose backup the server is connected to
  ShardServer server_;
};

}  // namespace troop
