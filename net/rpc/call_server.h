#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/network.h"
#include "net/rpc/sequence_ring.h"
#include "net/wire/frame.h"

namespace troop {

// The server side of calls without a transport: exactly-once handling, fencing, parked calls,
// heartbeats. A derived class moves the bytes. Owner: the node's thread; held by shared_ptr,
// because parked Replies outlive it.
//
// Per channel it keeps a record of each call in [oldest_open, newest]: open (being handled or
// parked) or answered, with the answer. A repeat of an open call is ignored; a repeat of an
// answered call gets the same answer. Bounded by kSequenceSpanMax records per channel, clients_max
// channels and reply_memory_bytes.
//
// Invariants: a call is handled only if it carries this server's session, its channel has a record
// and its incarnation is the newest of its (role, index), unless that is a tool. So a call is never
// handled twice. A newer incarnation fences only after Service::CheckOrigin has accepted it.
class CallServer : public std::enable_shared_from_this<CallServer> {
 public:
  CallServer(Service* service, const NetworkOptions& network, std::uint64_t session);
  virtual ~CallServer() = default;

  // Handles one message; called by the transport from Pump. Errors: kDataLoss for a message that no
  // correct client sends; the transport drops the peer.
  Status Receive(const Envelope& envelope, Message message, Time now);
  // Sends blocked answers and heartbeats, and detects silent clients; called after all Receive of
  // this Pump. Returns true if something was sent.
  bool Tick(Time now);
  Time next_tick() const;
  // Finds the clients whose connection has ended, by a heartbeat to each.
  void Probe(Time now);
  // Stops calling the service; pending Replies have no effect.
  void Close() { service_ = nullptr; }
  bool closed() const { return service_ == nullptr; }

  std::size_t clients() const { return clients_.size(); }
  std::size_t reply_memory() const { return reply_bytes_; }
  bool Serves(std::uint64_t channel) const { return clients_.contains(channel); }

 protected:
  virtual SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                              const Message& message) = 0;

 private:
  class ReplySink;
  struct Record {
    enum State : std::uint8_t { kUnseen, kOpen, kAnswered, kDropped } state = kUnseen;
    bool blocked = false;  // waits in Client::blocked
    std::size_t bytes = 0;
    Message reply;
  };
  struct Client {
    explicit Client(std::uint64_t id, const Origin& who) : channel(id), origin(who) {}
    std::uint64_t channel;
    Origin origin;
    PeerState state = PeerState::kConnecting;
    Time last_heard{};
    Time last_sent{};
    std::uint16_t part_flag = 0;  // of its last call; answers use the same flag
    std::size_t reply_bytes = 0;
    SequenceRing<Record> records{1};
    std::deque<std::uint64_t> blocked;  // sequences of answers waiting for the socket
  };
  // All channels of one (role, index) with its newest incarnation.
  struct Identity {
    std::uint64_t incarnation = 0;
    PeerState told = PeerState::kConnecting;  // last state reported to the service
    std::vector<std::uint64_t> channels;
  };
  using IdentityKey = std::pair<Role, std::int32_t>;

  Client* Find(std::uint64_t channel);
  Status ReceiveHello(const Envelope& envelope, const Message& message);
  Status ReceiveCall(const Envelope& envelope, Message message);
  // Returns null after refusing the client.
  Client* Admit(const Envelope& envelope, const Origin& origin);
  // Returns false if the client table is full of live clients.
  bool MakeRoom();
  void Erase(std::uint64_t channel);
  void FenceOlder(Identity& identity, const Origin& newer);
  // Drops the answers of calls below `oldest_open`.
  void Confirm(Client& client, std::uint64_t oldest_open);
  void DropReply(Client& client, Record& record);
  // Drops the oldest answers of the client with the most, until below reply_memory_bytes.
  void LimitReplyMemory();
  void Answer(std::uint64_t channel, std::uint64_t sequence, Message message);
  void SendReply(Client& client, std::uint64_t sequence);
  void FlushBlocked(Client& client);
  SendResult Control(Client& client, std::uint16_t kind);
  void Refuse(std::uint64_t channel, const Status& why);
  void SetState(Client& client, PeerState state);
  void NotifyService(const Origin& origin);

  Service* service_;
  const NetworkOptions network_;
  const std::uint64_t session_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;
  Client* recent_ = nullptr;  // cached result of the last Find
  std::map<IdentityKey, Identity> identities_;
  std::size_t reply_bytes_ = 0;
  int blocked_clients_ = 0;
  bool sent_any_ = false;  // since the last Tick
  std::uint64_t rejected_clients_ = 0;
  Time now_{};
  Time next_round_{};
  Time probe_again_ = kForever;
};

}  // namespace troop
