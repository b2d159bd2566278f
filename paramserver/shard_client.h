#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/time.h"
#include "net/network.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/shard_map.h"

namespace troop {

// A learner's end of K parameter shards: pushes a gradient to all of them, and pulls from all, in
// parallel. What a lost connection leaves open is sent again; the shards count it once.
// Nothing blocks. Owner: the learner's node thread.
//   client->RequestPull(); Poll() until TakePull(); compute; client->Push(…); …
class ShardClient {
 public:
  struct Options {
    CodecOptions codec;
    int pushes_open_max = 2;  // to each shard; 1 or more, below PushLedger::kWindow
    Duration answer_within =
        Seconds(60);  // a pull, or a push, that waits for others; then it fails
  };
  struct Pulled {
    std::uint64_t version = 0;  // the oldest of the shards'; in step they are all the same
    // What actors call these weights (core/trajectory.h): the newest course, and that version.
    std::uint64_t weights_version = 0;
    std::span<const float> value;  // [P], until the next RequestPull
    bool changed = false;          // false: no shard had anything newer
  };
  // Channels in the order of map.shards(), with a learner's origin; each must take a message of its
  // shard's bytes (NetworkOptions::message_bytes_max).
  ShardClient(ShardMap map, std::vector<std::unique_ptr<Channel>> channels, const Options& options);

  // Another process serves this shard by now: all that is open is sent there.
  void Replace(std::size_t shard, std::unique_ptr<Channel> channel);
  // The parameters lie otherwise by now; `channels` as in the constructor. What was not sent of
  // gradients (error feedback) goes with its elements, and a pull that is open is asked for again.
  // Pushes that are open were cut by the old map, which takes none any more: they are refused. Who
  // left before the move has none.
  void Remap(ShardMap map, std::vector<std::unique_ptr<Channel>> channels);

  // Asks all shards. REQUIRES: not pulling().
  Status RequestPull(Time now);
  // The same, but tells all that nobody is to wait for this learner until its next pull; the answer
  // has nothing new.
  Status RequestLeave(Time now);
  bool pulling() const { return pulling_; }
  // Room for one more push at every shard; pulls don't count.
  bool CanPush() const;
  // [P]: a gradient (local SGD: a value) computed at what was pulled last. It is coded and copied
  // before this returns. REQUIRES: CanPush, pulled once. Errors: kDataLoss: it is not finite;
  // nothing was sent.
  Status Push(Time now, std::span<const float> gradient, float learning_rate, float loss);
  // Takes answers. Call it when the network was pumped.
  void Poll(Time now);
  // All shards' answers to the last RequestPull, once.
  std::optional<Pulled> TakePull();

  // What no retry mends, or what was not answered in time; the first one. ok otherwise.
  const Status& error() const { return error_; }
  std::uint64_t pushes() const { return sequence_; }
  std::size_t pushes_open() const;                    // not settled yet, by some shard
  std::uint64_t applied() const { return applied_; }  // shards' answers: K a push
  std::uint64_t dropped() const { return dropped_; }  // late, too old, or an outlier
  // Refused because this learner must pull first: its lease had ended, a backup took over, or it
  // missed a move.
  std::uint64_t refused() const { return refused_; }
  // Since it was asked last: bytes of payload, coded, of pushes (each once) and of answers to
  // pulls; and seconds from pushes to their last shard's answer, added up.
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
    std::vector<GradientEncoder> encoders;  // one a part
    std::vector<OpenPush> pushes;           // in order
    std::uint64_t version = 0, course = 0;  // of what was pulled
    Time send_after{};                      // it said "later"
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
  std::vector<float> gathered_;  // a part of several ranges
  bool pulling_ = false, leaving_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t applied_ = 0, dropped_ = 0, refused_ = 0;
  Traffic traffic_;
  Status error_;
};

}  // namespace troop
