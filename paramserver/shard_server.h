#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/history.h"
#include "core/metrics.h"
#include "core/time.h"
#include "net/network.h"
#include "paramserver/parameter_shard.h"
#include "paramserver/shard_backup.h"
#include "paramserver/wire.h"

namespace troop {

// One ParameterShard behind a socket. A push is answered once it is settled, a learner's pull once
// it may go on; until then their Replies are kept: one pull a learner, and the pushes that the
// shard holds. A learner takes part from its first pull on, until it has been silent or hung for
// its lease; then nobody waits for it, and its next pull lets it in again.
// With a backup nothing is answered, and no further update carried out, before the backup has all
// that the answer tells of: what was acknowledged, or seen by anybody, is in both. Owner: the
// node's thread; Tick once a turn. An update runs within Handle or Tick: it is the shard's work.
class ShardServer final : public Service {
 public:
  struct Options {
    Duration lease = Seconds(2);  // beyond NetworkOptions::dead_after
    // From the first Tick: whoever of SyncOptions::learners has not come by then is not waited for.
    Duration join_within = Seconds(30);
    std::uint64_t course = 0;  // ShardPullReplyBody::course
    // It was the backup: who pushes took part at the primary, though no update has told of it.
    bool takes_over = false;
    std::int32_t shard = 0;  // for people and the history
    History* history = nullptr;
  };
  ShardServer(std::unique_ptr<ParameterShard> shard, const Options& options);
  // Whoever waits for an answer is told to ask again: another may serve the shard, or the run ends.
  ~ShardServer() override;

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override;
  // Ends leases.
  void Tick(Time now);
  Time next_tick() const;

  // From now on all goes to this one, too; null: it is alone.
  void SetBackup(std::unique_ptr<ShardBackup> backup);
  const ShardBackup* backup() const { return backup_.get(); }
  // Answers nothing while it can't be sure that it is the primary still.
  void SetSure(bool sure);
  // While it stands still nothing changes and nobody is answered; learners are told to come later.
  // Updates that threads are making are made before it does.
  void StandStill(bool still);
  bool stands_still() const { return still_ && shard_->applying() == 0; }
  // Begins no update until GoOn; whether none is under way, so that a Snapshot is possible.
  bool Rest();
  void GoOn();
  // It is none any more: all who wait are told to ask elsewhere.
  void Depose();

  const ParameterShard& shard() const { return *shard_; }
  Buffer Snapshot(std::span<const ParamRange> ranges) { return shard_->Snapshot(ranges); }
  std::uint64_t course() const { return options_.course; }
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
    PushId id;                  // kHeld: what was applied,
    std::uint64_t version = 0;  // and the version that it made
  };
  struct Absence {
    std::uint64_t incarnation = 0;
    Time until = kForever;  // kForever: Tick has not seen it yet
    bool heard = false;     // connected, but it has not said whether it still takes part
  };

  void Present(const Origin& learner);
  Status Push(Message message, Reply* reply);
  Status Pull(const Message& message, Reply* reply);
  void AnswerPush(Reply* reply, ParameterShard::Outcome outcome) const;
  void AnswerPull(Parked parked);
  Result<Message> MakePullReply(const ShardPullBody& body);
  // Nothing that was done here is unknown to the backup.
  bool MayAnswer() const { return sure_ && !still_ && (!backup_ || backup_->has_all()); }
  void AnswerSettled();
  void TurnAway(const Status& status);
  void Note(HistoryEvent::What what, const PushId& id, std::uint64_t version) const;
  void AnswerPulls();
  bool IsKnown(std::int32_t learner) const;
  bool EndJoining(Time now);
  // Carries out what is due, and answers whom that concerns.
  void Settle();

  Options options_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<ShardBackup> backup_;
  bool sure_ = true, still_ = false, rests_ = false;
  std::map<PushId, Reply> pushes_;          // held
  std::vector<Settled> settled_;            // to be answered once MayAnswer
  std::map<std::int32_t, Parked> pulls_;    // by learner
  std::vector<Parked> readers_;             // of those who are none; once MayAnswer
  std::map<std::int32_t, Absence> absent_;  // by learner
  // Incarnations of those who take part; 0: as a snapshot says, and not heard of since.
  std::map<std::int32_t, std::uint64_t> lives_;
  Time join_until_ = kForever;
  bool ticked_ = false;
  std::uint64_t leases_ended_ = 0, refused_ = 0;
};

}  // namespace troop
