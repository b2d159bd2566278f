#pragma once

#include <optional>
#include <string>

#include "net/network.h"
#include "net/rpc/sequence_ring.h"
#include "net/wire/frame.h"

namespace troop {

// Limit of the distance, in calls, between the newest call and the oldest open one. It bounds the
// number of records that a server keeps per client. Calls that stay open much longer than others
// need a separate channel.
inline constexpr std::uint64_t kSequenceSpanMax = 4096;

// The client side of calls, independent of the transport: window, tickets, deadlines,
// retransmission, heartbeats. A derived class sends and receives the bytes. Owner: the node's
// thread.
//
// Connection states: after the transport has called Connected, the channel sends Hello messages
// until the server answers with a Welcome, which contains the id of its session. Then the channel
// sends all open calls in the order of their sequence numbers, and later each new call at once.
// After Disconnected, calls stay open; the next Connected makes it send Hello messages again.
class CallChannel : public Channel {
 public:
  // id: identifies the channel at the server. check_parts: big parts have checksums.
  CallChannel(std::string endpoint, const ChannelOptions& channel, const NetworkOptions& network,
              std::uint64_t id, bool check_parts);

  Result<Ticket> Send(Message& message, Time deadline) override;
  std::optional<Result<Message>> Poll(Ticket ticket) override;
  void Forget(Ticket ticket) override;
  bool CanSend() const override;
  int in_flight() const override { return open_ + unpolled_; }
  PeerState peer() const override { return state_; }

  const std::string& endpoint() const { return endpoint_; }
  std::uint64_t id() const { return id_; }

  // Called by the transport, during Pump: the state of the connection, a new name of the endpoint,
  // and each message.
  void Connected(Time now);
  void Disconnected(Time now);
  void Rename(std::string endpoint) { endpoint_ = std::move(endpoint); }
  void Receive(const Envelope& envelope, Message message, Time now);
  // Fails the channel permanently: all open calls end with `error`, and each later Send returns it.
  void Fail(const Status& error);
  // Sends queued calls and heartbeats, and ends overdue calls; called after the last Receive of a
  // Pump. Returns true if a call ended or was sent.
  bool Tick(Time now);
  // Earliest time at which Tick has work, unless a message arrives earlier.
  Time next_tick() const;
  // True if the server has sent a Welcome, but nothing within the last dead_after.
  bool silent() const { return welcomed_once_ && now_ - last_heard_ > network_.dead_after; }

 protected:
  // Sends one message. Returns false, without side effects, if the socket is full or not connected;
  // the caller retries.
  virtual bool Transmit(const Envelope& envelope, const Message& message) = 0;
  // Notifies the server that the channel ends. For destructors of derived classes.
  void SayGoodbye();

 private:
  struct Call {
    enum State : std::uint8_t { kQueued, kSent, kDone, kGone } state = kQueued;
    Time deadline{};
    std::size_t bytes = 0;
    std::uint64_t session = 0;              // session of the last transmission; 0: never sent
    Message request;                        // kept until answered, for retransmission
    std::optional<Result<Message>> result;  // set while kDone
  };

  bool IsOpen(const Call& call) const { return call.state <= Call::kSent; }
  void Finish(Call& call, Result<Message> result);
  void Release(Call& call);  // frees its request and its part of the window
  // Advances oldest_open_ and drops finished calls from the front of the ring.
  void Trim();
  // Transmits queued calls in order, until the socket is full.
  void Flush();
  void Expire();
  void FailOpen(const Status& error, bool only_this_session);
  void ReceiveReply(Message message);
  bool Control(std::uint16_t kind);
  void UpdateState();

  std::string endpoint_;
  const ChannelOptions options_;
  const NetworkOptions network_;
  const std::uint64_t id_;
  const std::uint16_t part_flag_;

  SequenceRing<Call> calls_{1};
  std::uint64_t oldest_open_ = 1;  // all calls below this number are answered or dropped
  std::uint64_t next_send_ = 1;    // all open calls below this number were sent on this connection
  int open_ = 0;                   // number of unanswered calls
  int unpolled_ = 0;               // number of calls that are answered but not yet polled
  std::size_t open_bytes_ = 0;
  Time first_deadline_ = kForever;  // no open call has an earlier deadline

  std::optional<Status> failed_;  // set permanently: fenced, or incompatible wire version
  std::uint64_t session_ = 0;
  bool connected_ = false;
  bool welcomed_ = false;  // true after a Welcome on this connection
  bool welcomed_once_ = false;
  PeerState state_ = PeerState::kConnecting;
  Time now_{};  // time of the last Tick
  Time connected_at_{};
  Time last_heard_{};
  Time last_sent_{};
  Time next_hello_{};
  std::optional<Time> unlogged_disconnect_since_;  // nullopt: none, or it is logged already
};

}  // namespace troop
