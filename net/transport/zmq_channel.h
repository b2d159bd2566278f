#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "net/network.h"
#include "net/rpc/call_channel.h"
#include "net/rpc/stable_list.h"
#include "net/security/keys.h"
#include "net/transport/endpoint.h"
#include "net/transport/zmq_socket.h"
#include "net/wire/frame.h"

namespace troop {

// Client side of a connection: transports the messages of a CallChannel over a DEALER socket.
// Owner: the thread of its network. Nothing blocks.
class ZmqChannel final : public CallChannel {
 public:
  // The parts of the network that a channel uses. `list`: the network's channels, which has this
  // one while it lives.
  struct Owner {
    std::shared_ptr<ZmqContext> context;
    std::shared_ptr<StableList<ZmqChannel>> list;
    NetworkOptions options;
  };
  // `name`: the endpoint without a key. REQUIRES: Open before any other call.
  ZmqChannel(Owner owner, const Endpoint& endpoint, std::string name,
             const ChannelOptions& channel);
  ~ZmqChannel() override;

  // Opens the socket and connects it. Errors: the endpoint can't be connected.
  Status Open(Time now);
  // Handles events, messages and timers; true if there were any.
  bool Pump(Time now);
  // Reconnects to a new endpoint of the same service.
  void MoveTo(const Endpoint& endpoint, std::string name, Time now);
  ZmqSocket& socket() { return socket_; }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override;

 private:
  bool Read(Time now);
  void Refused(SocketEvent::Refusal refusal, Time now);
  void TrustServer();

  const Owner owner_;
  Endpoint at_;
  const WireLimits limits_;
  ZmqSocket socket_;
  bool full_ = false;
  bool reads_;                 // true if this side accepts tickets for big parts (ipc only)
  bool server_reads_ = false;  // true if the server accepts them
  // With keys: the possible keys of the server, and the index of the one in use.
  std::vector<PublicKey> servers_;
  std::size_t server_ = 0;
  int refusals_ = 0;  // consecutive rejections of this key
  Time last_refusal_{};
};

}  // namespace troop
