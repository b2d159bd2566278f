// Implements CallServer: admission, fencing, deduplication of calls, and answers kept for
// retransmission.
#include "net/rpc/call_server.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/error.h"
#include "net/rpc/call_channel.h"

namespace troop {
namespace {

// Delay before an answer is retried after a full socket.
constexpr Duration kFullRetry = Milliseconds(1);
// ZeroMQ reports the end of a connection slightly before it removes the route; probed again after
// that.
constexpr Duration kProbeAgain = Milliseconds(20);

std::string NameOf(const Origin& origin) {
  return fmt::format("{} {} (incarnation {})", RoleName(origin.role), origin.index,
                     origin.incarnation);
}

// True if both messages are from the same incarnation.
bool SameSender(const Origin& a, const Origin& b) {
  return a.role == b.role && a.index == b.index && a.incarnation == b.incarnation;
}

// Heartbeat interval toward silent clients. Beyond 250 clients it grows with their number, up to 2
// s, which bounds both the load and the time to detect a dead client.
Duration BeatEvery(Duration usual, std::size_t clients) {
  constexpr std::size_t kMany = 250;
  if (clients <= kMany) return usual;
  return std::max<Duration>(usual, std::min<Duration>(Milliseconds(2 * clients), Seconds(2)));
}

}  // namespace

// Routes an answer to its record; without effect after the server was destroyed.
class CallServer::ReplySink final : public Reply::Sink {
 public:
  ReplySink(std::weak_ptr<CallServer> server, std::uint64_t channel, std::uint64_t sequence)
      : server_(std::move(server)), channel_(channel), sequence_(sequence) {}
  void Answer(Message message) override {
    if (const auto server = server_.lock()) server->Answer(channel_, sequence_, std::move(message));
  }

 private:
  std::weak_ptr<CallServer> server_;
  std::uint64_t channel_;
  std::uint64_t sequence_;
};

CallServer::CallServer(Service* service, const NetworkOptions& network, std::uint64_t session)
    : service_(service), network_(network), session_(session) {}

// Consecutive messages are often of one channel, so the last result is cached.
CallServer::Client* CallServer::Find(std::uint64_t channel) {
  if (recent_ != nullptr && recent_->channel == channel) return recent_;
  const auto found = clients_.find(channel);
  if (found == clients_.end()) return nullptr;
  return recent_ = found->second.get();
}

Status CallServer::Receive(const Envelope& envelope, Message message, Time now) {
  // Checks the sender, then handles calls, Hello, Goodbye and heartbeats.
  if (closed()) return Status::Ok();
  now_ = std::max(now_, now);
  Client* const client = Find(envelope.channel);
  if (client != nullptr) {
    if (!SameSender(client->origin, message.origin)) {
      return DataLoss("a message of {} came on the channel of {}", NameOf(message.origin),
                      NameOf(client->origin));
    }
    client->last_heard = now_;
  }
  if (envelope.flags & kFlagCall) return ReceiveCall(envelope, std::move(message));
  if (envelope.flags & kFlagHello) return ReceiveHello(envelope, message);
  if (client == nullptr) return Status::Ok();
  if (envelope.flags & kFlagGoodbye) {
    SetState(*client, PeerState::kDown);
    Erase(envelope.channel);
  } else if (envelope.flags & kFlagHeartbeat) {
    Confirm(*client, message.origin.oldest_open);
    SetState(*client, PeerState::kUp);
  }
  return Status::Ok();
}

// Admits the client if it is new, and confirms the session.
Status CallServer::ReceiveHello(const Envelope& envelope, const Message& message) {
  Client* client = Find(envelope.channel);
  if (client == nullptr) client = Admit(envelope, message.origin);
  if (client == nullptr) return Status::Ok();
  // On a new connection the client repeats the calls that it still needs, so answers blocked for
  // the old connection are released.
  if (!client->blocked.empty()) --blocked_clients_;
  for (const std::uint64_t sequence : client->blocked) {
    if (client->records.Contains(sequence)) client->records[sequence].blocked = false;
  }
  client->blocked.clear();
  Confirm(*client, message.origin.oldest_open);
  Control(*client, kFlagWelcome);
  SetState(*client, PeerState::kUp);
  return Status::Ok();
}

// Admits a new channel. Order of the checks: fenced incarnations, dropped clients, incarnations
// that the coordinator did not issue, and the number of clients.
CallServer::Client* CallServer::Admit(const Envelope& envelope, const Origin& origin) {
  const IdentityKey key{origin.role, origin.index};
  if (const auto newer = identities_.find(key);
      newer != identities_.end() && newer->second.incarnation > origin.incarnation) {
    // Checked first, so that a fenced client is notified even by a repeated call.
    const Status why =
        Aborted("{} was replaced by incarnation {}", NameOf(origin), newer->second.incarnation);
    ++rejected_clients_;
    if ((rejected_clients_ & (rejected_clients_ - 1)) ==
        0) {  // powers of two: a client may retry indefinitely
      LogWarning("rejected: {}", why.message());
    }
    Refuse(envelope.channel, why);
    return nullptr;
  }
  // The client continues a session whose records were dropped, so its calls may have been applied.
  if (envelope.session == session_ && origin.oldest_open <= origin.sequence) {
    Refuse(envelope.channel,
           DeadlineExceeded("the server dropped this client after {:.0f} s without contact",
                            ToSeconds(network_.forget_after)));
    return nullptr;
  }
  // Tools choose their own incarnations, so these never fence.
  const bool issued = origin.role != Role::kTool;
  const auto known = identities_.find(key);
  if (issued && (known == identities_.end() || known->second.incarnation < origin.incarnation)) {
    if (const Status may = service_->CheckOrigin(origin, now_); !may.ok()) {
      Refuse(envelope.channel, may);
      return nullptr;
    }
  }
  if (!MakeRoom()) {
    Refuse(envelope.channel, ResourceExhausted("the server has {} clients, the limit (clients_max)",
                                               clients_.size()));
    return nullptr;
  }
  Identity& identity = identities_[key];
  if (issued && identity.incarnation < origin.incarnation) FenceOlder(identity, origin);
  identity.channels.push_back(envelope.channel);
  auto& slot = clients_[envelope.channel];
  slot = std::make_unique<Client>(envelope.channel, origin);
  // Records start at the oldest call that the client may still send.
  slot->records.Restart(std::max<std::uint64_t>(origin.oldest_open, 1));
  slot->last_heard = now_;
  return slot.get();
}

// Makes room for one more client; evicts the client that has been down longest if the table is
// full.
bool CallServer::MakeRoom() {
  if (clients_.size() < static_cast<std::size_t>(network_.clients_max)) return true;
  Client* oldest = nullptr;
  for (const auto& [channel, client] : clients_) {
    if (client->state == PeerState::kDown &&
        (oldest == nullptr || client->last_heard < oldest->last_heard)) {
      oldest = client.get();
    }
  }
  if (oldest == nullptr) return false;
  Erase(oldest->channel);
  return true;
}

void CallServer::Erase(std::uint64_t channel) {
  Client& client = *clients_.at(channel);
  const IdentityKey key{client.origin.role, client.origin.index};
  std::erase(identities_[key].channels, channel);
  reply_bytes_ -= client.reply_bytes;
  if (!client.blocked.empty()) --blocked_clients_;
  recent_ = nullptr;
  clients_.erase(channel);
  // An identity without channels is kept for fencing, up to a limit that regular fleets (at most
  // clients_max processes) do not reach.
  if (identities_.size() > 4 * static_cast<std::size_t>(network_.clients_max)) {
    std::erase_if(identities_, [](const auto& entry) { return entry.second.channels.empty(); });
  }
}

// Rejects and removes all channels of older incarnations.
void CallServer::FenceOlder(Identity& identity, const Origin& newer) {
  const std::vector<std::uint64_t> channels = identity.channels;
  for (const std::uint64_t channel : channels) {
    Client& client = *clients_.at(channel);
    Refuse(channel,
           Aborted("{} was replaced by incarnation {}", NameOf(client.origin), newer.incarnation));
    SetState(client, PeerState::kDown);
    if (clients_.contains(channel)) Erase(channel);
  }
  identity.incarnation = newer.incarnation;
  identity.told = PeerState::kConnecting;
}

Status CallServer::ReceiveCall(const Envelope& envelope, Message message) {
  const std::uint64_t sequence = message.origin.sequence;
  const std::uint64_t oldest_open = message.origin.oldest_open;
  // A correct client never violates its window.
  if (oldest_open == 0 || oldest_open > sequence || sequence - oldest_open >= kSequenceSpanMax) {
    return DataLoss("call {} names the invalid oldest open call {}", sequence, oldest_open);
  }
  Client* const client = Find(envelope.channel);
  if (client == nullptr || envelope.session != session_) {
    // The call was sent to a previous session, or the client was fenced meanwhile. The client must
    // send Hello first.
    if (client == nullptr && Admit(envelope, message.origin) == nullptr) return Status::Ok();
    Control(*Find(envelope.channel), kFlagWelcome);
    return Status::Ok();
  }
  client->origin = message.origin;
  client->part_flag = envelope.flags & kFlagPartsChecked;
  Confirm(*client, oldest_open);
  SetState(*client, PeerState::kUp);
  SequenceRing<Record>& records = client->records;
  if (sequence < records.begin()) return Status::Ok();  // late repeat; the caller has its answer
  // Calls may arrive out of order after a reconnection, so gaps get empty records.
  while (records.end() <= sequence) records.Push();
  Record& record = records[sequence];
  // New calls are handled; repeats of open ones are ignored; repeats of answered ones get the
  // answer again.
  switch (record.state) {
    case Record::kUnseen:
      record.state = Record::kOpen;
      service_->Handle(std::move(message), Reply(std::make_unique<ReplySink>(
                                               weak_from_this(), envelope.channel, sequence)));
      break;
    case Record::kOpen:
      break;
    case Record::kAnswered:
    case Record::kDropped:
      if (!record.blocked) SendReply(*client, sequence);
      break;
  }
  return Status::Ok();
}

// The client needs no answers below `oldest_open`.
void CallServer::Confirm(Client& client, std::uint64_t oldest_open) {
  SequenceRing<Record>& records = client.records;
  while (!records.empty() && records.begin() < oldest_open) {
    DropReply(client, records[records.begin()]);
    records.PopFront();
  }
  if (records.empty() && records.begin() < oldest_open) records.Restart(oldest_open);
}

void CallServer::DropReply(Client& client, Record& record) {
  client.reply_bytes -= record.bytes;
  reply_bytes_ -= record.bytes;
  record.bytes = 0;
  record.reply = {};
}

// Drops the oldest answers of the client that uses the most memory, except those that are being
// sent.
void CallServer::LimitReplyMemory() {
  while (reply_bytes_ > network_.reply_memory_bytes) {
    Client* largest = nullptr;
    for (const auto& [channel, client] : clients_) {
      if (largest == nullptr || client->reply_bytes > largest->reply_bytes) largest = client.get();
    }
    SequenceRing<Record>& records = largest->records;
    std::uint64_t s = records.begin();
    while (s != records.end() && (records[s].bytes == 0 || records[s].blocked)) ++s;
    if (s == records.end()) return;  // the rest is being sent; bounded by the windows
    DropReply(*largest, records[s]);
    records[s].state = Record::kDropped;
  }
}

void CallServer::Answer(std::uint64_t channel, std::uint64_t sequence, Message message) {
  Client* const client = Find(channel);
  if (closed() || client == nullptr || !client->records.Contains(sequence)) return;
  Record& record = client->records[sequence];
  // The call was confirmed or dropped meanwhile.
  if (record.state != Record::kOpen) return;
  const Status sendable = CheckSendable(
      message, {.message_bytes_max = network_.message_bytes_max, .parts_max = network_.parts_max});
  if (!sendable.ok()) {
    LogError("can't send an answer: {}", sendable.message());
    message = MakeErrorMessage(Internal("can't send the answer: {}", sendable.message()));
  }
  record.state = Record::kAnswered;
  record.reply = std::move(message);
  record.reply.origin = {.sequence = sequence};
  record.bytes = PayloadBytes(record.reply) + sizeof(Record);
  client->reply_bytes += record.bytes;
  reply_bytes_ += record.bytes;
  SendReply(*client, sequence);
  if (reply_bytes_ > network_.reply_memory_bytes) LimitReplyMemory();
}

void CallServer::SendReply(Client& client, std::uint64_t sequence) {
  Record& record = client.records[sequence];
  SendResult sent = SendResult::kFull;
  // Answers keep their order: none overtakes a blocked one.
  if (client.blocked.empty()) {
    const auto flags = static_cast<std::uint16_t>(kFlagReply | client.part_flag);
    const Envelope envelope{.flags = flags, .channel = client.channel, .session = session_};
    if (record.state == Record::kDropped) {
      // Reported like a lost answer, so that callers of idempotent calls retry.
      Message lost = MakeErrorMessage(DeadlineExceeded(
          "call {} was answered, but the answer was dropped (reply_memory_bytes)", sequence));
      lost.origin.sequence = sequence;
      sent = Transmit(client.channel, envelope, lost);
    } else {
      sent = Transmit(client.channel, envelope, record.reply);
    }
  }
  if (sent == SendResult::kFull) {
    if (client.blocked.empty()) ++blocked_clients_;
    client.blocked.push_back(sequence);
    record.blocked = true;
  } else if (sent == SendResult::kSent) {
    client.last_sent = now_;
    sent_any_ = true;
  }
  // After kGone the client repeats the call when it reconnects.
}

// Sends blocked answers in order until the socket is full again.
void CallServer::FlushBlocked(Client& client) {
  std::deque<std::uint64_t> waiting = std::move(client.blocked);
  client.blocked.clear();
  if (!waiting.empty()) --blocked_clients_;
  while (!waiting.empty() && client.blocked.empty()) {
    const std::uint64_t sequence = waiting.front();
    waiting.pop_front();
    if (!client.records.Contains(sequence)) continue;  // dropped by the caller
    client.records[sequence].blocked = false;
    SendReply(client, sequence);
  }
  client.blocked.insert(client.blocked.end(), waiting.begin(), waiting.end());
}

SendResult CallServer::Control(Client& client, std::uint16_t kind) {
  const SendResult sent =
      Transmit(client.channel, {.flags = kind, .channel = client.channel, .session = session_},
               {.type = MessageType::kHeartbeat});
  if (sent == SendResult::kSent) client.last_sent = now_;
  return sent;
}

void CallServer::Refuse(std::uint64_t channel, const Status& why) {
  // Best effort: a client that misses the refusal retries.
  Transmit(channel, {.flags = kFlagReply, .channel = channel, .session = session_},
           MakeErrorMessage(why));
}

void CallServer::Probe(Time now) {
  now_ = std::max(now_, now);
  probe_again_ = now_ + kProbeAgain;
  std::vector<std::uint64_t> gone;
  for (const auto& [channel, client] : clients_) {
    if (client->state != PeerState::kDown &&
        Control(*client, kFlagHeartbeat) == SendResult::kGone) {
      gone.push_back(channel);
    }
  }
  // Sorted, so that the order of callbacks does not depend on the hash table.
  std::sort(gone.begin(), gone.end());
  for (const std::uint64_t channel : gone) {
    if (Client* const client = Find(channel)) SetState(*client, PeerState::kDown);
  }
}

bool CallServer::Tick(Time now) {
  // A pause of this process must not count as silence of the clients.
  const Duration lost = now - now_ - network_.heartbeat_every;
  if (lost > Duration::zero()) {
    for (const auto& [channel, client] : clients_) client->last_heard += lost;
  }
  now_ = std::max(now_, now);
  if (blocked_clients_ > 0) {
    for (const auto& [channel, client] : clients_) {
      if (!client->blocked.empty()) FlushBlocked(*client);
    }
  }
  if (now_ >= probe_again_) {
    Probe(now_);
    probe_again_ = kForever;
  }
  // A round over all clients: heartbeats, silence, and clients that have been down for too long.
  if (now_ >= next_round_) {
    next_round_ = now_ + network_.heartbeat_every / 4;
    const Duration every = BeatEvery(network_.heartbeat_every, clients_.size());
    // Applied after the loop, because callbacks may change clients_; kConnecting means removal.
    std::vector<std::pair<std::uint64_t, PeerState>> changes;
    for (const auto& [channel, client] : clients_) {
      const Duration silence = now_ - client->last_heard;
      PeerState state = client->state;
      if (now_ - client->last_sent >= every && state != PeerState::kDown &&
          Control(*client, kFlagHeartbeat) == SendResult::kGone) {
        state = PeerState::kDown;
      } else if (state == PeerState::kUp && silence > network_.dead_after) {
        state = PeerState::kHung;
      }
      if (state != client->state) changes.emplace_back(channel, state);
      if (state == PeerState::kDown && silence > network_.forget_after) {
        changes.emplace_back(channel, PeerState::kConnecting);
      }
    }
    std::sort(changes.begin(), changes.end());
    for (const auto& [channel, state] : changes) {
      Client* const client = Find(channel);
      if (client == nullptr) continue;
      if (state == PeerState::kConnecting) {
        Erase(channel);
      } else {
        SetState(*client, state);
      }
    }
  }
  return std::exchange(sent_any_, false);
}

Time CallServer::next_tick() const {
  Time next = clients_.empty() ? kForever : next_round_;
  if (blocked_clients_ > 0) next = std::min(next, now_ + kFullRetry);
  return std::min(next, probe_again_);
}

void CallServer::SetState(Client& client, PeerState state) {
  if (client.state == state) return;
  client.state = state;
  NotifyService(Origin(client.origin));
}

// Reports the best state of all channels of an origin.
void CallServer::NotifyService(const Origin& origin) {
  const auto found = identities_.find({origin.role, origin.index});
  if (closed() || found == identities_.end()) return;
  PeerState best = PeerState::kDown;
  for (const std::uint64_t channel : found->second.channels) {
    const auto client = clients_.find(channel);
    if (client == clients_.end()) continue;
    if (client->second->state == PeerState::kUp) best = PeerState::kUp;
    if (client->second->state == PeerState::kHung && best == PeerState::kDown) {
      best = PeerState::kHung;
    }
  }
  if (best == found->second.told) return;
  found->second.told = best;
  service_->PeerChanged(origin, best);
}

}  // namespace troop
