#pragma once

#include <optional>
#include <string>

#include "net/network.h"
#include "net/sequence_ring.h"
#include "net/wire.h"

namespace troop {

// How far the newest call may run ahead of the oldest unanswered one: bounds what a server must
// remember of one client. A call that stays open much longer than others wants its own channel.
inline constexpr std::uint64_t kSequenceSpanMax = 4096;

// The calling end without its transport: windows, tickets, deadlines, repetition, heartbeats.
// A derived class moves the bytes. Owner: the node's thread.
//
// Life of a connection: the transport says Connected; Hello goes out until a Welcome names the
// server's session; then all unanswered calls go out in order of their sequence, and new ones as
// they come. Disconnected: back to the start; calls stay open.
class CallChannel : public Channel {
 public:
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

  // For the transport, from Pump.
  void Connected(Time now);
  void Disconnected(Time now);
  void Rename(std::string endpoint) { endpoint_ = std::move(endpoint); }
  void Receive(const Envelope& envelope, Message message, Time now);
  // The other side can't be talked to at all: all calls, also later ones, fail with `error`.
  void Fail(const Status& error);
  // Sends what waits, heartbeats, expires deadlines; after all Receive of this Pump. True: a call
  // ended or left.
  bool Tick(Time now);
  // When Tick has something to do without any message.
  Time next_tick() const;
  // Nothing was heard for dead_after although the connection stands.
  bool silent() const { return welcomed_once_ && now_ - last_heard_ > network_.dead_after; }

 protected:
  // Takes nothing and returns false when there is no room or no connection: try again later.
  virtual bool Transmit(const Envelope& envelope, const Message& message) = 0;
  void SayGoodbye();  // for destructors of derived classes

 private:
  struct Call {
    enum State : std::uint8_t { kQueued, kSent, kDone, kGone } state = kQueued;
    Time deadline{};
    std::size_t bytes = 0;
    std::uint64_t session = 0;              // last sent to; 0: never
    Message request;                        // until answered
    std::optional<Result<Message>> result;  // kDone
  };

  bool IsOpen(const Call& call) const { return call.state <= Call::kSent; }
  void Finish(Call& call, Result<Message> result);
  void Release(Call& call);  // its request and its share of the window
  void Trim();
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
  std::uint64_t oldest_open_ = 1;  // calls below need nothing from the server any more
  std::uint64_t next_send_ = 1;    // calls below were sent on this connection, or are closed
  int open_ = 0;                   // neither answered nor given up
  int unpolled_ = 0;               // answered, not yet polled
  std::size_t open_bytes_ = 0;
  Time first_deadline_ = kForever;  // a lower bound

  std::optional<Status> failed_;  // fenced, or another wire version
  std::uint64_t session_ = 0;
  bool connected_ = false;
  bool welcomed_ = false;  // on this connection
  bool welcomed_once_ = false;
  PeerState state_ = PeerState::kConnecting;
  Time now_{};  // of the last Pump
  Time connected_at_{};
  Time last_heard_{};
  Time last_sent_{};
  Time next_hello_{};
  std::optional<Time> unsaid_since_;  // the peer is down, and the log does not say so yet
};

}  // namespace troop
