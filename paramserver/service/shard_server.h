#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/base/event_history.h"
#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "net/network.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/replication/backup_client.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// Network service of one ParameterShard. A push is answered once it is settled, a learner's pull
// once the policy lets the learner continue; until then their Replies are kept: one pull per
// learner, and the pushes that the shard holds. A learner is a member from its first pull until it
// has been silent or hung for its lease; then no update waits for it, and its next pull admits it
// again.
// With a backup, nothing is answered and no further update is applied before the backup has
// everything that the answer depends on: what was acknowledged or observed is in both. Owner: the
// node's thread; call Tick once per step. Updates run within Handle or Tick.
class ShardServer final : public Service {
 public:
  struct Options {
    Duration lease = Seconds(2);  // beyond NetworkOptions::dead_after
    // Time after the first Tick at which learners of SyncOptions::learners that have not joined are
    // no longer waited for.
    Duration join_within = Seconds(30);
    std::uint64_t lineage = 0;  // ShardPullReplyBody::lineage
    // It was the backup: a learner that pushes counts as a member of the primary's policy, even if
    // no update reported it.
    bool is_failover = false;
    std::int32_t shard = 0;  // for logs and the history
    EventHistory* history = nullptr;
  };
  ShardServer(std::unique_ptr<ParameterShard> shard, const Options& options);
  // Fails all waiting requests with kUnavailable, so that callers retry: another process may serve
  // the shard, or the run ends.
  ~ShardServer() override;

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override;
  // Ends expired leases and applies due updates.
  void Tick(Time now);
  Time next_tick() const;

  // Replicates everything to this backup from now on; null: no backup.
  void SetBackup(std::unique_ptr<BackupClient> backup);
  const BackupClient* backup() const { return backup_.get(); }
  // False suspends all answers while another process may have become the primary.
  void SetPrimaryConfirmed(bool confirmed);
  // Pauses the shard for resharding: nothing changes, nothing is answered, and learners get
  // the reply to retry later. Updates in flight on threads are completed first.
  void SetPaused(bool paused);
  bool is_paused() const { return paused_ && shard_->applying() == 0; }
  // Begins no update until ResumeUpdates. Returns true if none is in flight, so that Snapshot is
  // possible.
  bool PauseUpdates();
  void ResumeUpdates();
  // Ends the service as primary: waiting callers must retry at the new one.
  void StopServing();

  const ParameterShard& shard() const { return *shard_; }
  Buffer Snapshot(std::span<const ParamRange> ranges) { return shard_->Snapshot(ranges); }
  std::uint64_t lineage() const { return options_.lineage; }
  Buffer Snapshot() { return shard_->Snapshot(); }
  void Report(Metrics* metrics) const;

 private:
  struct Parked {
    Reply reply;
    ShardPullBody body;
  };
  struct Settled {
    Reply reply;
    ParameterShard::Outcome outcome{};
    PushId id;                  // kHeld: the applied push,
    std::uint64_t version = 0;  // and the version that it produced
  };
  struct Absence {
    std::uint64_t incarnation = 0;
    Time until = kForever;     // kForever: not seen by Tick yet
    bool reconnected = false;  // connected, but neither pushed nor pulled yet
  };

  void RenewLease(const Origin& learner);
  Status Push(Message message, Reply* reply);
  Status Pull(const Message& message, Reply* reply);
  void AnswerPush(Reply* reply, ParameterShard::Outcome outcome) const;
  void AnswerPull(Parked parked);
  Result<Message> MakePullReply(const ShardPullBody& body);
  // True if the backup has everything that was done here.
  bool MayAnswer() const {
    return primary_confirmed_ && !paused_ && (!backup_ || backup_->has_all());
  }
  void AnswerSettled();
  void FailOpenRequests(const Status& status);
  void Note(HistoryEvent::What what, const PushId& id, std::uint64_t version) const;
  void AnswerPulls();
  bool IsKnown(std::int32_t learner) const;
  bool EndJoining(Time now);
  // Applies due updates and answers the affected requests.
  void Settle();

  Options options_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<BackupClient> backup_;
  bool primary_confirmed_ = true, paused_ = false, updates_paused_ = false;
  std::map<PushId, Reply> pushes_;          // held
  std::vector<Settled> settled_;            // to be answered once MayAnswer
  std::map<std::int32_t, Parked> pulls_;    // by learner
  std::vector<Parked> readers_;             // pulls of non-learners; once MayAnswer
  std::map<std::int32_t, Absence> absent_;  // by learner
  // Incarnations of the members, by learner; 0: known from a snapshot only.
  std::map<std::int32_t, std::uint64_t> incarnations_;
  Time join_until_ = kForever;
  bool ticked_ = false;
  std::uint64_t leases_ended_ = 0, refused_ = 0;
};

}  // namespace troop
