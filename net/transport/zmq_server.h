#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/base/log_rate_limit.h"
#include "net/network.h"
#include "net/rpc/call_server.h"
#include "net/security/keys.h"
#include "net/security/tcp_guard.h"
#include "net/transport/endpoint.h"
#include "net/transport/zmq_socket.h"
#include "net/wire/frame.h"

namespace troop {

// Server side: transports the messages of a CallServer over a ROUTER socket,
// and cuts off peers that send invalid messages.
// Owner: the thread of its network. Nothing blocks.
class ZmqServer final : public CallServer {
 public:
  ZmqServer(Service* service, const NetworkOptions& network, const Endpoint& endpoint);

  // Binds the endpoint. Errors: kAlreadyExists: it is in use.
  Status Open(const std::shared_ptr<ZmqContext>& context, const Endpoint& endpoint,
              const NetworkOptions& network);
  // Closes the socket, so the endpoint is free when it returns; pending Replies may keep the object
  // alive longer.
  void Leave();
  // Handles events, messages and timers; true if there were any.
  bool Pump(Time now);
  // Time at which Pump has work without a message.
  Time next_pump() const;
  ZmqSocket& socket() { return socket_; }
  // The bound endpoint for clients, with the key.
  const std::string& endpoint() const { return told_; }

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override;

 private:
  bool Read(Time now);
  Status Accept(ZmqMessage& incoming, Time now);
  void Reject(const Status& why, Time now);
  void Forbid(const ZmqMessage& incoming, const Status& why, Time now);
  void NoteStranger(const std::optional<std::string>& name, Time now);
  void Guard(Time now);

  const Endpoint::Transport transport_;
  const std::shared_ptr<const KeyRing> keys_;  // null without keys, or if not tcp
  const WireLimits limits_;
  std::string endpoint_;  // name for ZeroMQ
  std::string told_;      // name for clients, with the key
  IpcSocket ipc_;         // must outlive the socket
  ZmqSocket socket_;
  TcpGuard guard_;
  Time next_guard_{};
  // TCP only: the connection of the last message of a channel; looked up again after each change of
  // connections.
  struct Way {
    std::uint64_t change = 0;
    int connection = -1;
  };
  std::unordered_map<std::uint64_t, Way> ways_;
  std::uint64_t changes_ = 1;
  // ipc only: true if a channel accepts tickets, and true if its own tickets could not be read
  // here.
  struct Sharing {
    bool reads = false, unread = false;
  };
  std::unordered_map<std::uint64_t, Sharing> sharing_;
  LogRateLimit rejected_, strangers_, forbidden_;
  // Reason of the last failed handshake; the event of its closed connection follows.
  std::optional<SocketEvent::Refusal> refusal_;
};

}  // namespace troop
