// ShardConnection: the requests of a sampler to one shard.
#include "replay/service/shard_connection.h"

#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr double kTotalMax = 1e100;  // keeps the sum over thousands of shards finite

// True for errors that pass: lost samples are requested again, and lost priorities keep their old
// values.
bool Passing(Code code) { return code == Code::kDeadlineExceeded || code == Code::kUnavailable; }

}  // namespace

// Sends a message with the pending updates. nullopt: no room now, or *error has a permanent
// reason; then nothing changed.
std::optional<Ticket> ShardConnection::Send(MessageType type, std::string body, Status* error) {
  // Pending priorities travel with any message; they are dropped only once it is sent.
  if (!channel_->CanSend()) return std::nullopt;
  Message message{.type = type, .body = std::move(body)};
  if (!key_.empty()) message.parts.push_back(PackUpdates(key_, priority_));
  const auto ticket = channel_->Send(message, kForever);
  if (!ticket.ok()) {
    if (ticket.status().code() != Code::kResourceExhausted) *error = ticket.status();
    return std::nullopt;
  }
  key_.clear();
  priority_.clear();
  return *ticket;
}

// Common part of sample and feed requests.
SampleBody ShardConnection::BodyOf(const Request& request) const {
  return {.table = table_,
          .batch_size = request.rows,
          .batches = request.batches,
          .charge = request.charge,
          .updates = std::uint32_t(key_.size()),
          .taken = taken_,
          .drain = request.drain,
          .policy_version = policy_version_};
}

Result<std::optional<Ticket>> ShardConnection::Ask(const Request& request) {
  Status error;
  const auto ticket = Send(MessageType::kSample, EncodeBody(BodyOf(request)), &error);
  if (!error.ok()) return error.WithContext("replay sample");
  if (ticket) drain_told_ = request.drain;
  return ticket;
}

// The table's sample request is part of the feed request.
Result<std::optional<Ticket>> ShardConnection::RequestTableDelta(const Request& request,
                                                                 TableDeltaBody body) {
  body.sample = BodyOf(request);
  Status error;
  const auto ticket = Send(MessageType::kTableDelta, EncodeBody(body), &error);
  if (!error.ok()) return error.WithContext("replay feed");
  if (ticket) drain_told_ = request.drain;
  return ticket;
}

// A message without updates still reports what was taken, a drain or a waiver.
Result<bool> ShardConnection::SendUpdates(bool drain, bool waive) {
  const UpdateBody body{table_, std::uint32_t(key_.size()), taken_, drain, waive, policy_version_};
  Status error;
  const auto ticket = Send(MessageType::kUpdatePriorities, EncodeBody(body), &error);
  if (!error.ok()) return error.WithContext("replay priorities");
  if (!ticket) return false;
  updates_.push_back(*ticket);
  drain_told_ = drain_told_ || drain;
  return true;
}

// A probe for one batch of 0 items waits until the shard can be sampled.
Status ShardConnection::Probe(bool when_ready, bool drain) {
  if (probe_ != 0) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const auto ticket, Ask({.batches = when_ready ? 1u : 0u, .drain = drain}));
  probe_ = ticket.value_or(0);
  return Status::Ok();
}

// Priorities first, then dictionaries, then the probe.
Status ShardConnection::PollSmall() {
  while (!updates_.empty()) {
    const auto answer = channel_->Poll(updates_.front());
    if (!answer) break;
    updates_.pop_front();
    if (!answer->ok() && !Passing(answer->status().code())) {
      return answer->status().WithContext("replay priorities");
    }
  }
  PollDictionaries();
  if (probe_ == 0) return Status::Ok();
  const auto answer = channel_->Poll(probe_);
  if (!answer) return Status::Ok();
  probe_ = 0;
  if (answer->ok()) {
    TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<SampleReplyBody>((*answer)->body));
    TROOP_RETURN_IF_ERROR(Check(body).WithContext("replay sample"));
    Note(body);
    dead_ = false;
    return Status::Ok();
  }
  // The shard has drained. Only a probe for a batch gets this reply, and only a known shard, which
  // is alive, gets such a probe.
  if (answer->status().code() == Code::kOutOfRange) {
    closed_ = true;
    return Status::Ok();
  }
  if (Passing(answer->status().code())) return Status::Ok();
  return answer->status().WithContext("replay sample");
}

// NaN fails every comparison with the limits, and credit == credit.
Status ShardConnection::Check(const SampleReplyBody& body) {
  if (body.total >= 0 && body.total <= kTotalMax && body.credit == body.credit) return Status::Ok();
  return DataLoss("reply has total {} and credit {}, must be finite and total >= 0", body.total,
                  body.credit);
}

// The shard counts reserved items since its start: a smaller count than what was taken is from a
// new process.
void ShardConnection::Note(const SampleReplyBody& body) {
  if (body.reserved < taken_) {  // the shard was restarted unnoticed
    taken_ = 0;
    ++life_;
  }
  total_ = body.total;
  credit_ = body.credit;
  known_ = true;
  groups_since_total = 0;
}

// Replies are invalid, unknown, or a dictionary; timeouts leave the id missing, so that it is
// requested again.
void ShardConnection::PollDictionaries() {
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto answer = channel_->Poll(it->second);
    if (!answer) {
      ++it;
      continue;
    }
    if (answer->ok() && (*answer)->parts.size() == 1) {
      if (auto dictionary = MakeFrameDictionary((*answer)->parts[0])) {
        new_dictionaries_.push_back(std::move(dictionary));
      }
    }
    const Code code = answer->status().code();
    if (code == Code::kNotFound) {
      lost_.insert(it->first);
    } else if (!Passing(code)) {  // an invalid dictionary: decoding reports it as missing
      dictionaries_.insert(it->first);
    }
    it = asked_.erase(it);
  }
}

bool ShardConnection::LostAny(std::span<const std::uint32_t> ids) const {
  return std::ranges::any_of(ids, [this](std::uint32_t id) { return lost_.contains(id); });
}

// Requests each missing dictionary once.
bool ShardConnection::HasDictionaries(std::span<const std::uint32_t> ids) {
  bool all = true;
  for (const std::uint32_t id : ids) {
    if (dictionaries_.contains(id)) continue;
    all = false;
    if (asked_.contains(id) || !channel_->CanSend()) continue;
    Message request{.type = MessageType::kDictionary,
                    .body = EncodeBody(DictionaryBody{table_, id})};
    const auto ticket = channel_->Send(request, kForever);
    if (ticket.ok()) asked_[id] = *ticket;
  }
  return all;
}

std::vector<std::shared_ptr<const FrameDictionary>> ShardConnection::NewDictionaries() {
  return std::exchange(new_dictionaries_, {});
}

// Requests in flight may never be answered; a probe reports when the shard is back.
void ShardConnection::MarkDead() {
  dead_ = true;
  known_ = false;
  total_ = credit_ = 0;
  charged_ = 0;
  taken_ = 0;
  ++life_;
  drain_told_ = false;  // a restarted process did not receive it
  waived_at.reset();
  credit_asked_at.reset();
  drain_untold_at.reset();
  key_.clear();
  priority_.clear();
  if (probe_ != 0) channel_->Forget(probe_);
  probe_ = 0;
  for (const auto& [id, ticket] : asked_) channel_->Forget(ticket);
  asked_.clear();
}

}  // namespace troop
