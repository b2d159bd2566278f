#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// A primary's connection to its backup: sends the whole state once, then each update, and tracks
// what the backup has acknowledged. If the backup lost track, the state is sent again.
// Owner: the ShardServer's owner. Memory: what the backup has not acknowledged.
class BackupClient {
 public:
  // Bytes of a snapshot per message.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

  BackupClient(std::unique_ptr<Channel> channel, std::uint64_t term, std::uint64_t lineage)
      : channel_(std::move(channel)), term_(term), lineage_(lineage) {}

  // True if the state was not sent yet, or must be sent again.
  bool NeedsState(Time now) const { return !state_sent_ && !outdated_ && now >= send_after_; }
  // Sends a snapshot in pieces.
  void SendState(const Buffer& snapshot);
  // REQUIRES: has_all().
  void SendUpdate(const ShardUpdate& update);
  // Processes replies and resends.
  void Poll(Time now);
  // True if the backup has acknowledged everything.
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
  const std::uint64_t term_, lineage_;
  std::deque<Open> open_;
  bool state_sent_ = false, outdated_ = false;
  Time send_after_{};
};

// A backup's side of the state transfer: assembles the pieces. Owner: the backup's node.
class StateAssembler {
 public:
  explicit StateAssembler(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  // Adds a piece and returns the snapshot after the last one. A piece at offset 0 starts over.
  // Errors: kDataLoss: larger than `bytes_max`; kFailedPrecondition: it does not continue the
  // previous piece.
  Result<std::optional<Buffer>> Add(const ShardStateBody& head, const Buffer& piece);
  void Clear() { bytes_ = {}, received_ = 0, head_ = {}; }

 private:
  std::size_t bytes_max_;
  ShardStateBody head_;
  MutableBuffer bytes_;
  std::size_t received_ = 0;
};

}  // namespace troop
