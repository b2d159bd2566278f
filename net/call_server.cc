#include "net/call_server.h"

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "net/call_channel.h"
#include "net/error.h"

namespace troop {
namespace {

constexpr Duration kFullRetry = Milliseconds(1);
// ZeroMQ reports the end of a connection a moment before it takes its route away.
constexpr Duration kProbeAgain = Milliseconds(20);

std::string NameOf(const Origin& origin) {
  return fmt::format("{} {} (incarnation {})", RoleName(origin.role), origin.index,
                     origin.incarnation);
}

bool SameSender(const Origin& a, const Origin& b) {
  return a.role == b.role && a.index == b.index && a.incarnation == b.incarnation;
}

// A server of hundreds speaks to those who are silent less often, so that it costs what that of
// 250 does, up to 2 s: who is dead is noticed then.
Duration BeatEvery(Duration usual, std::size_t clients) {
  constexpr std::size_t kMany = 250;
  if (clients <= kMany) return usual;
  return std::max<Duration>(usual, std::min<Duration>(Milliseconds(2 * clients), Seconds(2)));
}

}  // namespace

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

CallServer::Client* CallServer::Find(std::uint64_t channel) {
  if (recent_ != nullptr && recent_->channel == channel) return recent_;
  const auto found = clients_.find(channel);
  if (found == clients_.end()) return nullptr;
  return recent_ = found->second.get();
}

Status CallServer::Receive(const Envelope& envelope, Message message, Time now) {
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
  } else if (envelope.flags & kFlagBeat) {
    Confirm(*client, message.origin.oldest_open);
    SetState(*client, PeerState::kUp);
  }
  return Status::Ok();
}

Status CallServer::ReceiveHello(const Envelope& envelope, const Message& message) {
  Client* client = Find(envelope.channel);
  if (client == nullptr) client = Admit(envelope, message.origin);
  if (client == nullptr) return Status::Ok();
  // A new connection: what waited for the old one is asked for again if it is still wanted.
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

CallServer::Client* CallServer::Admit(const Envelope& envelope, const Origin& origin) {
  const IdentityKey key{origin.role, origin.index};
  if (const auto newer = identities_.find(key);
      newer != identities_.end() && newer->second.incarnation > origin.incarnation) {
    // Before all else: whoever was fenced hears so, also by a call that it repeats.
    const Status why =
        Aborted("{} was replaced by incarnation {}", NameOf(origin), newer->second.incarnation);
    ++turned_away_;
    if ((turned_away_ & (turned_away_ - 1)) == 0) {  // 1, 2, 4, …: it may ask again for ever
      LogWarning("turned away: {}", why.message());
    }
    Refuse(envelope.channel, why);
    return nullptr;
  }
  if (envelope.session == session_ && origin.oldest_open <= origin.sequence) {
    Refuse(envelope.channel,
           DeadlineExceeded("the server has forgotten this client after {:.0f} s without contact",
                            ToSeconds(network_.forget_after)));
    return nullptr;
  }
  // Nothing issues the numbers of tools: none of them stands for a newer self of another.
  const bool issued = origin.role != Role::kTool;
  const auto known = identities_.find(key);
  if (issued && (known == identities_.end() || known->second.incarnation < origin.incarnation)) {
    if (const Status may = service_->CheckOrigin(origin, now_); !may.ok()) {
      Refuse(envelope.channel, may);
      return nullptr;
    }
  }
  if (!MakeRoom()) {
    Refuse(envelope.channel, ResourceExhausted("the server has {} clients, its limit (clients_max)",
                                               clients_.size()));
    return nullptr;
  }
  Identity& identity = identities_[key];
  if (issued && identity.incarnation < origin.incarnation) FenceOlder(identity, origin);
  identity.channels.push_back(envelope.channel);
  auto& slot = clients_[envelope.channel];
  slot = std::make_unique<Client>(envelope.channel, origin);
  slot->records.Restart(std::max<std::uint64_t>(origin.oldest_open, 1));
  slot->last_heard = now_;
  return slot.get();
}

// Room for one more client, if need be that of the one that is down for the longest.
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
  // An identity without channels is kept for its fence, up to a bound that honest fleets (who have
  // at most clients_max processes at a time) do not reach.
  if (identities_.size() > 4 * static_cast<std::size_t>(network_.clients_max)) {
    std::erase_if(identities_, [](const auto& entry) { return entry.second.channels.empty(); });
  }
}

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
  if (oldest_open == 0 || oldest_open > sequence || sequence - oldest_open >= kSequenceSpanMax) {
    return DataLoss("call {} with the oldest open one {}", sequence, oldest_open);
  }
  Client* const client = Find(envelope.channel);
  if (client == nullptr || envelope.session != session_) {
    // Meant for a server before this one, or overtaken by a fence: it says Hello first.
    if (client == nullptr && Admit(envelope, message.origin) == nullptr) return Status::Ok();
    Control(*Find(envelope.channel), kFlagWelcome);
    return Status::Ok();
  }
  client->origin = message.origin;
  client->part_flag = envelope.flags & kFlagPartsChecked;
  Confirm(*client, oldest_open);
  SetState(*client, PeerState::kUp);
  SequenceRing<Record>& records = client->records;
  if (sequence < records.begin()) return Status::Ok();  // a late repeat; the caller has its answer
  while (records.end() <= sequence) records.Push();
  Record& record = records[sequence];
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

void CallServer::LimitReplyMemory() {
  while (reply_bytes_ > network_.reply_memory_bytes) {
    Client* largest = nullptr;
    for (const auto& [channel, client] : clients_) {
      if (largest == nullptr || client->reply_bytes > largest->reply_bytes) largest = client.get();
    }
    SequenceRing<Record>& records = largest->records;
    std::uint64_t s = records.begin();
    while (s != records.end() && (records[s].bytes == 0 || records[s].blocked)) ++s;
    if (s == records.end()) return;  // what is left waits to leave: the windows bound it
    DropReply(*largest, records[s]);
    records[s].state = Record::kDropped;
  }
}

void CallServer::Answer(std::uint64_t channel, std::uint64_t sequence, Message message) {
  Client* const client = Find(channel);
  if (closed() || client == nullptr || !client->records.Contains(sequence)) return;
  Record& record = client->records[sequence];
  if (record.state != Record::kOpen) return;
  const Status sendable = CheckSendable(
      message, {.message_bytes_max = network_.message_bytes_max, .parts_max = network_.parts_max});
  if (!sendable.ok()) {
    LogError("an answer can't be sent: {}", sendable.message());
    message = MakeErrorMessage(Internal("the answer can't be sent: {}", sendable.message()));
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
  if (client.blocked.empty()) {
    const auto flags = static_cast<std::uint16_t>(kFlagReply | client.part_flag);
    const Envelope envelope{.flags = flags, .channel = client.channel, .session = session_};
    if (record.state == Record::kDropped) {
      // As if it had been lost on the way: callers that can ask again do.
      Message lost = MakeErrorMessage(DeadlineExceeded(
          "call {} was answered, but the answer was not kept (reply_memory_bytes)", sequence));
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
  // kGone: the client asks again when it is back.
}

void CallServer::FlushBlocked(Client& client) {
  std::deque<std::uint64_t> waiting = std::move(client.blocked);
  client.blocked.clear();
  if (!waiting.empty()) --blocked_clients_;
  while (!waiting.empty() && client.blocked.empty()) {
    const std::uint64_t sequence = waiting.front();
    waiting.pop_front();
    if (!client.records.Contains(sequence)) continue;  // its caller gave it up
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
  // Best effort: a client that misses it asks again.
  Transmit(channel, {.flags = kFlagReply, .channel = channel, .session = session_},
           MakeErrorMessage(why));
}

void CallServer::Probe(Time now) {
  now_ = std::max(now_, now);
  probe_again_ = now_ + kProbeAgain;
  std::vector<std::uint64_t> gone;
  for (const auto& [channel, client] : clients_) {
    if (client->state != PeerState::kDown && Control(*client, kFlagBeat) == SendResult::kGone) {
      gone.push_back(channel);
    }
  }
  std::sort(gone.begin(), gone.end());
  for (const std::uint64_t channel : gone) {
    if (Client* const client = Find(channel)) SetState(*client, PeerState::kDown);
  }
}

bool CallServer::Tick(Time now) {
  // Time in which nobody pumped is not the clients' silence.
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
  if (now_ >= next_round_) {
    next_round_ = now_ + network_.heartbeat_every / 4;
    const Duration every = BeatEvery(network_.heartbeat_every, clients_.size());
    std::vector<std::pair<std::uint64_t, PeerState>> changes;
    for (const auto& [channel, client] : clients_) {
      const Duration silence = now_ - client->last_heard;
      PeerState state = client->state;
      if (now_ - client->last_sent >= every && state != PeerState::kDown &&
          Control(*client, kFlagBeat) == SendResult::kGone) {
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
  TellService(Origin(client.origin));
}

// An origin with several channels is in the best state of any of them.
void CallServer::TellService(const Origin& origin) {
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
