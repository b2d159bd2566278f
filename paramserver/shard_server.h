#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/metrics.h"
#include "core/time.h"
#include "net/network.h"
#include "paramserver/parameter_shard.h"
#include "paramserver/wire.h"

namespace troop {

// One ParameterShard behind a socket. A push is answered once it is settled, a learner's pull once
// it may go on; until then their Replies are kept: one pull a learner, and the pushes that the
// shard holds. A learner takes part from its first pull on, until it has been silent or hung for
// its lease; then nobody waits for it, and its next pull lets it in again.
// Owner: the node's thread; Tick once a turn. An update runs within Handle: it is the shard's work.
class ShardServer final : public Service {
 public:
  struct Options {
    Duration lease = Seconds(2);  // beyond NetworkOptions::dead_after
    // From the first Tick: whoever of SyncOptions::learners has not come by then is not waited for.
    Duration join_within = Seconds(30);
  };
  ShardServer(std::unique_ptr<ParameterShard> shard, const Options& options);

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override;
  // Ends leases.
  void Tick(Time now);
  Time next_tick() const;

  const ParameterShard& shard() const { return *shard_; }
  Buffer Snapshot() { return shard_->Snapshot(); }
  void Report(Metrics* metrics) const;

 private:
  struct Parked {
    Reply reply;
    ShardPullBody body;
  };
  struct Absence {
    std::uint64_t incarnation = 0;
    Time until = kForever;  // kForever: Tick has not seen it yet
  };

  void Present(const Origin& learner);
  Status Push(Message message, Reply* reply);
  Status Pull(const Message& message, Reply* reply);
  void AnswerPush(Reply* reply, ParameterShard::Outcome outcome) const;
  Status AnswerPull(const ShardPullBody& body, Reply* reply);
  bool EndJoining(Time now);
  // Carries out what is due, and answers whom that concerns.
  void Settle();

  Options options_;
  std::unique_ptr<ParameterShard> shard_;
  std::map<PushId, Reply> pushes_;
  std::map<std::int32_t, Parked> pulls_;    // by learner
  std::map<std::int32_t, Absence> absent_;  // by learner
  // Incarnations of those who take part; 0: as a snapshot says, and not heard of since.
  std::map<std::int32_t, std::uint64_t> lives_;
  Time join_until_ = kForever;
  bool ticked_ = false;
  std::uint64_t leases_ended_ = 0, refused_ = 0;
};

}  // namespace troop
