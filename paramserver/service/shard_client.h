#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// A learner's client of K parameter shards: pushes a gradient to all of them, and pulls from all,
// in parallel. Requests that a lost connection leaves open are resent; the shards deduplicate
// pushes. Nothing blocks. Owner: the learner's node thread.
//   client->RequestPull(); Poll() until TakePull(); compute; client->Push(…); …
class ShardClient {
 public:
  struct Options {
    CodecOptions codec;
    int pushes_open_max = 2;  // per shard; from 1, below PushDedup::kWindow
    // Limit for a pull or a push that waits for other learners; after it the client fails.
    Duration answer_within = Seconds(60);
  };
  // Result of a pull.
  struct Pulled {
    std::uint64_t version = 0;  // oldest of the shards' versions; equal in synchronous modes
    // Version of these weights as actors see it (core/tensor/trajectory.h): the newest lineage, and
    // `version`.
    std::uint64_t weights_version = 0;
    std::span<const float> value;  // [P], until the next RequestPull
    bool changed = false;          // false: no shard had anything newer
  };
  // Channels are in the order of map.shards() and have the learner as origin; each must accept a
  // message of its shard's size (NetworkOptions::message_bytes_max).
  ShardClient(ShardMap map, std::vector<std::unique_ptr<Channel>> channels, const Options& options);

  // Switches to another process that serves this shard now; open requests are resent to it.
  void Replace(std::size_t shard, std::unique_ptr<Channel> channel);
  // Switches to a new shard map; `channels` as in the constructor. Error feedback residuals move
  // with their elements, and an open pull is requested again. Open pushes were cut by the old map,
  // which no shard accepts any more: they count as refused. A learner that left before the
  // resharding has none.
  void Remap(ShardMap map, std::vector<std::unique_ptr<Channel>> channels);

  // Requests the parameters from all shards. REQUIRES: not pulling().
  Status RequestPull(Time now);
  // Like RequestPull, but leaves: no shard waits for this learner until its next pull. The reply
  // has nothing new.
  Status RequestLeave(Time now);
  bool pulling() const { return pulling_; }
  // True if every shard has room for one more push; pulls are not counted.
  bool CanPush() const;
  // Pushes `gradient` [P] (local SGD: a value), computed at what was pulled last. It is encoded and
  // copied before this returns. REQUIRES: CanPush, pulled once. Errors: kDataLoss: not finite;
  // nothing was sent.
  Status Push(Time now, std::span<const float> gradient, float learning_rate, float loss);
  // Processes replies and resends. Call it after the network was polled.
  void Poll(Time now);
  // Result of the last RequestPull once all shards have replied; returned once.
  std::optional<Pulled> TakePull();

  // First permanent error or timeout; ok otherwise.
  const Status& error() const { return error_; }
  std::uint64_t pushes() const { return sequence_; }
  std::size_t pushes_open() const;                    // not settled yet by some shard
  std::uint64_t applied() const { return applied_; }  // replies of shards: K per push
  std::uint64_t dropped() const { return dropped_; }  // late, too old, or an outlier
  // Pushes refused because this learner must pull first: its lease had expired, a backup took over,
  // or it missed a resharding.
  std::uint64_t refused() const { return refused_; }
  // Traffic since the last TakeTraffic: encoded payload bytes of pushes (each counted once) and of
  // pull replies; and the summed seconds from each push to its last shard's reply.
  struct Traffic {
    double pushed_bytes = 0, pulled_bytes = 0, push_s = 0;
  };
  Traffic TakeTraffic() { return std::exchange(traffic_, {}); }

 private:
  struct OpenPush {
    Ticket ticket = 0;  // 0: to be sent (again)
    Message message;
    Time since{}, deadline{};
  };
  struct Shard {
    std::unique_ptr<Channel> channel;
    std::vector<ParamRange> ranges;
    std::vector<std::vector<ParamRange>> parts;
    std::vector<GradientEncoder> encoders;   // one per part
    std::vector<OpenPush> pushes;            // in order
    std::uint64_t version = 0, lineage = 0;  // of the last pull
    Time send_after{};                       // backoff after a retryable error
    Ticket pull = 0;
    bool pull_wanted = false, changed = false;
    Time pull_deadline{};
  };

  std::vector<Shard> MakeShards(std::vector<std::unique_ptr<Channel>> channels) const;
  void MoveResiduals(std::vector<Shard>* to);
  Result<Message> MakePush(Shard* shard, std::span<const float> gradient, float learning_rate,
                           float loss, float norm);
  static bool HasUnsent(const Shard& shard);
  std::uint64_t furthest() const;
  void SendPull(Shard* shard);
  void SendPushes(Shard* shard);
  void PollPull(Shard* shard, Time now);
  void PollPushes(Shard* shard, Time now);
  Status TakeParts(Shard* shard, const Message& message);
  void Fail(const Status& status, std::string_view what);

  ShardMap map_;
  Options options_;
  std::vector<Shard> shards_;
  std::vector<float> value_;
  std::vector<float> gathered_;  // scratch: a part that spans several ranges
  bool pulling_ = false, leaving_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t applied_ = 0, dropped_ = 0, refused_ = 0;
  Traffic traffic_;
  Status error_;
};

}  // namespace troop
