#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "core/buffer.h"
#include "core/status.h"
#include "core/time.h"
#include "net/network.h"
#include "paramserver/parameter_shard.h"
#include "paramserver/wire.h"

namespace troop {

// A primary's end of its backup: brings it the whole state once, then each update, and knows when
// all of it is there. Where the backup lost track it asks for the state again.
// Owner: the ShardServer's. Memory: what the backup has not answered.
class ShardBackup {
 public:
  // Of a snapshot, in one message.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

  ShardBackup(std::unique_ptr<Channel> channel, std::uint64_t term, std::uint64_t course)
      : channel_(std::move(channel)), term_(term), course_(course) {}

  // The state was not sent yet, or in vain.
  bool WantsState(Time now) const { return !state_sent_ && !outdated_ && now >= send_after_; }
  void SendState(const Buffer& snapshot);
  // REQUIRES: has_all().
  void SendUpdate(const ShardUpdate& update);
  void Poll(Time now);
  // It has all.
  bool has_all() const { return state_sent_ && open_.empty(); }
  std::uint64_t term() const { return term_; }

 private:
  struct Open {
    Message message;
    Ticket ticket = 0;  // 0: to be sent
  };
  void Send();
  void TakeAnswer(const Status& status, Time now);

  std::unique_ptr<Channel> channel_;
  const std::uint64_t term_, course_;
  std::deque<Open> open_;
  bool state_sent_ = false, outdated_ = false;
  Time send_after_{};
};

// A backup's end of the state: puts the pieces together. Owner: the backup's node.
class ArrivingState {
 public:
  explicit ArrivingState(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  // The snapshot, with its last piece. A piece at 0 begins anew. Errors: kDataLoss: larger than it
  // can be; kFailedPrecondition: it does not go on from the piece before.
  Result<std::optional<Buffer>> Add(const ShardStateBody& head, const Buffer& piece);
  void Clear() { bytes_ = {}, have_ = 0, head_ = {}; }

 private:
  std::size_t bytes_max_;
  ShardStateBody head_;
  MutableBuffer bytes_;
  std::size_t have_ = 0;
};

}  // namespace troop
