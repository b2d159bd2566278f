// Implements replication from a primary to its backup: the state in pieces, then one message per
// update.
#include "paramserver/replication/backup_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/wire/codec.h"
#include "paramserver/protocol/messages.h"

namespace troop {
namespace {

// Delay before the state is sent again, so that a restarting backup is not flooded.
constexpr Duration kTryAgain = Milliseconds(10);

}  // namespace

// The pieces share the snapshot's memory.
void BackupClient::SendState(const Buffer& snapshot) {
  state_sent_ = true;
  for (std::size_t at = 0; at < snapshot.size(); at += kPieceBytes) {
    Message message{.type = MessageType::kShardState,
                    .body = EncodeBody(ShardStateBody{term_, lineage_, at, snapshot.size()})};
    message.parts.push_back(snapshot.Slice(at, std::min(kPieceBytes, snapshot.size() - at)));
    open_.push_back({std::move(message)});
  }
  Send();
}

// Updates follow the state in order, so it need not be acknowledged yet.
void BackupClient::SendUpdate(const ShardUpdate& update) {
  TROOP_CHECK(state_sent_, "update {} before the state", update.version);
  Message message{.type = MessageType::kShardUpdate,
                  .body = EncodeBody(ShardUpdateBody{term_, update})};
  if (!update.sum.empty()) message.parts.push_back(update.sum);
  open_.push_back({std::move(message)});
  Send();
}

// Messages are sent in order; those without a ticket are not sent yet.
void BackupClient::Send() {
  for (Open& open : open_) {
    if (open.ticket != 0) continue;
    Message copy = open.message;  // the parts are shared
    const auto ticket = channel_->Send(copy, kForever);
    if (!ticket.ok()) return;  // full window, or fenced: open calls report it
    open.ticket = *ticket;
  }
}

// Replies are taken in order: the first open message is the oldest.
void BackupClient::Poll(Time now) {
  while (!open_.empty() && open_.front().ticket != 0) {
    const auto answer = channel_->Poll(open_.front().ticket);
    if (!answer) break;
    TakeAnswer(answer->status(), now);
  }
  if (now >= send_after_) Send();
}

// Any failure discards the open messages: the state is sent again. kAborted means that the backup
// has seen a newer term, so this primary stops sending until the coordinator replaces it.
void BackupClient::TakeAnswer(const Status& status, Time now) {
  if (status.ok()) return open_.pop_front();
  if (status.code() == Code::kAborted) {
    if (!outdated_) LogWarning("replication stopped, a newer term exists: {}", status.message());
    outdated_ = true;
  }
  LogDebug("the backup lost track, sending the state again: {}", status.message());
  for (const Open& open : open_) {
    if (open.ticket != 0) channel_->Forget(open.ticket);
  }
  open_.clear();
  state_sent_ = false;
  send_after_ = now + kTryAgain;
}

// Input is untrusted: sizes are bounded before memory is allocated.
Result<std::optional<Buffer>> StateAssembler::Add(const ShardStateBody& head, const Buffer& piece) {
  if (head.total > bytes_max_ || head.total == 0) {
    return DataLoss("a shard state has {} bytes, must have 1 to {}", head.total, bytes_max_);
  }
  if (head.offset == 0) {
    head_ = head;
    bytes_ = MutableBuffer(head.total);
    received_ = 0;
  }
  // A piece must continue the same transfer at the same position.
  const bool continues = bytes_.size() > 0 && head.term == head_.term &&
                         head.total == head_.total && head.offset == received_ &&
                         piece.size() <= head.total - received_;
  if (!continues || piece.empty()) {
    Clear();
    return FailedPrecondition("a piece of a shard state does not continue the previous piece");
  }
  std::memcpy(bytes_.data() + received_, piece.data(), piece.size());
  received_ += piece.size();
  if (received_ < head.total) return std::optional<Buffer>();
  std::optional<Buffer> whole = std::move(bytes_).Freeze();
  Clear();
  return whole;
}

}  // namespace troop
