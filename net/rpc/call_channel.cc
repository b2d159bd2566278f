// Implements CallChannel: the client side of calls, with retransmission, deadlines and heartbeats.
#include "net/rpc/call_channel.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/error.h"

namespace troop {
namespace {

// Delays before a Hello or a call is retried after a full socket.
constexpr Duration kHelloRetry = Milliseconds(10);
constexpr Duration kFullRetry = Milliseconds(1);
// Delay before a Hello is repeated after kUnavailable: the server is still confirming this
// incarnation with the coordinator.
constexpr Duration kRefusedRetry = Milliseconds(20);

}  // namespace

CallChannel::CallChannel(std::string endpoint, const ChannelOptions& channel,
                         const NetworkOptions& network, std::uint64_t id, bool check_parts)
    : endpoint_(std::move(endpoint)),
      options_(channel),
      network_(network),
      id_(id),
      part_flag_(check_parts ? kFlagPartsChecked : 0) {}

// Queues a call. Limits: calls in the window, bytes in flight, and the distance to the oldest open
// call, which bounds the records of the server.
Result<Ticket> CallChannel::Send(Message& message, Time deadline) {
  if (failed_) return *failed_;
  TROOP_RETURN_IF_ERROR(CheckSendable(
      message, {.message_bytes_max = network_.message_bytes_max, .parts_max = network_.parts_max}));
  const std::size_t bytes = PayloadBytes(message);
  if (in_flight() >= options_.window) {
    return ResourceExhausted("{}: {} calls are open, the window holds {}; poll first", endpoint_,
                             in_flight(), options_.window);
  }
  // A call larger than the whole window may be sent alone.
  if (open_ > 0 && open_bytes_ + bytes > options_.window_bytes) {
    return ResourceExhausted("{}: {} bytes are in flight, the window holds {}; poll first",
                             endpoint_, open_bytes_, options_.window_bytes);
  }
  if (calls_.end() - oldest_open_ >= kSequenceSpanMax) {
    return ResourceExhausted("{}: {} calls were sent after one that is still open; poll first",
                             endpoint_, kSequenceSpanMax);
  }
  const std::uint64_t sequence = calls_.end();
  Call& call = calls_.Push();
  call.deadline = deadline;
  call.bytes = bytes;
  call.request = std::move(message);
  call.request.origin = options_.origin;
  call.request.origin.sequence = sequence;
  ++open_;
  open_bytes_ += bytes;
  first_deadline_ = std::min(first_deadline_, deadline);
  // Sent at once unless earlier calls still wait for the socket.
  if (welcomed_ && next_send_ == sequence) Flush();
  return sequence;
}

std::optional<Result<Message>> CallChannel::Poll(Ticket ticket) {
  if (!calls_.Contains(ticket)) return std::nullopt;
  Call& call = calls_[ticket];
  if (call.state != Call::kDone) return std::nullopt;
  std::optional<Result<Message>> result = std::move(call.result);
  call.result.reset();
  call.state = Call::kGone;
  --unpolled_;
  Trim();
  return result;
}

// The server may still handle the call; only its answer is discarded.
void CallChannel::Forget(Ticket ticket) {
  if (!calls_.Contains(ticket)) return;
  Call& call = calls_[ticket];
  if (IsOpen(call)) {
    Release(call);
  } else if (call.state == Call::kDone) {
    --unpolled_;
    call.result.reset();
  }
  call.state = Call::kGone;
  Trim();
}

bool CallChannel::CanSend() const {
  // Size for which room is guaranteed.
  constexpr std::size_t kSmallCall = 1024;
  return in_flight() < options_.window &&
         (open_ == 0 || open_bytes_ + kSmallCall <= options_.window_bytes) &&
         calls_.end() - oldest_open_ < kSequenceSpanMax;
}

void CallChannel::Connected(Time now) {
  connected_ = true;
  connected_at_ = now;
  welcomed_ = false;
  next_hello_ = now;
}

void CallChannel::Disconnected(Time /*now*/) {
  connected_ = false;
  welcomed_ = false;
}

void CallChannel::Receive(const Envelope& envelope, Message message, Time now) {
  if (envelope.channel != id_) return;  // another channel: a faulty or hostile server
  last_heard_ = now;
  if (envelope.flags & kFlagWelcome) {
    // A repeated Welcome of the same connection has no effect.
    if (welcomed_ && session_ == envelope.session) return;
    session_ = envelope.session;
    connected_ = welcomed_ = welcomed_once_ = true;
    // A new session or connection: all unanswered calls are sent again, in order.
    for (std::uint64_t s = oldest_open_; s != calls_.end(); ++s) {
      if (calls_[s].state == Call::kSent) calls_[s].state = Call::kQueued;
    }
    next_send_ = oldest_open_;
    Flush();
  } else if (envelope.flags & kFlagReply) {
    ReceiveReply(std::move(message));
  }
}

void CallChannel::ReceiveReply(Message message) {
  const std::uint64_t sequence = message.origin.sequence;
  // Sequence 0 refers to the channel: the server rejects it permanently or for now.
  if (sequence == 0) {
    const Status error = ErrorOf(message).WithContext(endpoint_);
    if (error.code() == Code::kAborted || error.code() == Code::kFailedPrecondition) {
      Fail(error);
    } else if (error.code() == Code::kDeadlineExceeded) {
      // The server dropped this client. Sent calls may have been applied or not, so they fail; the
      // rest are sent in a new session.
      if (session_ != 0) FailOpen(error, true);
      session_ = 0;
      welcomed_ = false;
      next_hello_ = now_;
    }
    if (error.code() == Code::kUnavailable) {  // not admitted yet: retry soon
      welcomed_ = false;
      next_hello_ = std::min(next_hello_, now_ + kRefusedRetry);
    }
    return;  // other errors are temporary: Hello is repeated
  }
  if (!calls_.Contains(sequence) || calls_[sequence].state != Call::kSent) return;
  if (message.type == MessageType::kError) {
    Finish(calls_[sequence], ErrorOf(message));
  } else {
    Finish(calls_[sequence], std::move(message));
  }
  Trim();
}

void CallChannel::Fail(const Status& error) {
  if (!failed_) LogWarning("{}", error.message());
  failed_ = error;
  FailOpen(error, false);
}

// Fails all open calls, or only those sent in this session. A call queued for retransmission counts
// as sent: the session that received its first copy may have applied it.
void CallChannel::FailOpen(const Status& error, bool only_this_session) {
  for (std::uint64_t s = oldest_open_; s != calls_.end(); ++s) {
    Call& call = calls_[s];
    if (IsOpen(call) && (!only_this_session || call.session == session_)) Finish(call, error);
  }
  Trim();
}

void CallChannel::Finish(Call& call, Result<Message> result) {
  Release(call);
  call.result = std::move(result);
  call.state = Call::kDone;
  ++unpolled_;
}

// The request is kept until now for retransmission.
void CallChannel::Release(Call& call) {
  --open_;
  open_bytes_ -= call.bytes;
  call.request = {};
}

// Open calls keep their place; polled ones at the front are removed.
void CallChannel::Trim() {
  while (calls_.Contains(oldest_open_) && !IsOpen(calls_[oldest_open_])) ++oldest_open_;
  while (!calls_.empty() && calls_[calls_.begin()].state == Call::kGone) calls_.PopFront();
  next_send_ = std::max(next_send_, oldest_open_);
}

void CallChannel::Flush() {
  for (; next_send_ != calls_.end(); ++next_send_) {
    Call& call = calls_[next_send_];
    if (call.state != Call::kQueued) continue;
    call.request.origin.oldest_open = oldest_open_;
    const auto flags = static_cast<std::uint16_t>(kFlagCall | part_flag_);
    if (!Transmit({.flags = flags, .channel = id_, .session = session_}, call.request)) return;
    call.state = Call::kSent;
    call.session = session_;
    last_sent_ = now_;
  }
}

// Sends a message without a call: Hello, heartbeat or Goodbye.
bool CallChannel::Control(std::uint16_t kind) {
  Message message{.type = MessageType::kHeartbeat, .origin = options_.origin};
  message.origin.oldest_open = oldest_open_;
  message.origin.sequence = calls_.end() - 1;
  if (!Transmit({.flags = kind, .channel = id_, .session = session_}, message)) return false;
  last_sent_ = now_;
  return true;
}

void CallChannel::SayGoodbye() {
  if (welcomed_) Control(kFlagGoodbye);
}

// Ends overdue calls. first_deadline_ avoids the scan until a deadline can have passed.
void CallChannel::Expire() {
  if (now_ < first_deadline_) return;
  first_deadline_ = kForever;
  for (std::uint64_t s = oldest_open_; s != calls_.end(); ++s) {
    Call& call = calls_[s];
    if (!IsOpen(call)) continue;
    if (call.deadline <= now_) {
      Finish(call, DeadlineExceeded("{}: no answer to call {} before its deadline ({})", endpoint_,
                                    s, welcomed_ ? "connected" : "not connected"));
    } else {
      first_deadline_ = std::min(first_deadline_, call.deadline);
    }
  }
  Trim();
}

bool CallChannel::Tick(Time now) {
  // A pause of this process must not count as silence of the peer.
  if (now - now_ > network_.heartbeat_every) last_heard_ += now - now_ - network_.heartbeat_every;
  last_heard_ = std::min(last_heard_, now);
  now_ = now;
  const int open_before = open_;
  const std::uint64_t sent_before = next_send_;
  if (failed_) {
    // The channel has failed permanently; only Expire has work left.
  } else if (!welcomed_) {
    // Hello is repeated until the server answers.
    if (now >= next_hello_) {
      next_hello_ = now + (Control(kFlagHello) ? network_.heartbeat_every : kHelloRetry);
    }
  } else {
    Flush();
    if (now - last_sent_ >= network_.heartbeat_every && !Control(kFlagHeartbeat)) {
      last_sent_ += kHelloRetry;  // socket full: retry soon
    }
  }
  Expire();
  UpdateState();
  return open_ != open_before || next_send_ != sent_before;
}

Time CallChannel::next_tick() const {
  if (failed_) return kForever;
  // The earliest of: a deadline, a retry, the detection of silence, the next heartbeat.
  Time next = first_deadline_;
  if (!welcomed_) return std::min(next, next_hello_);
  if (next_send_ != calls_.end()) next = std::min(next, now_ + kFullRetry);
  if (state_ == PeerState::kUp) {
    next = std::min(next, last_heard_ + network_.dead_after + Milliseconds(1));
  }
  return std::min(next, last_sent_ + network_.heartbeat_every);
}

void CallChannel::UpdateState() {
  // A peer that never answered is kConnecting, not down.
  if (!welcomed_once_) return;
  const PeerState before = state_;
  if (!connected_) {
    state_ = PeerState::kDown;
  } else if (silent() && now_ - connected_at_ > network_.dead_after) {
    state_ = PeerState::kHung;
  } else if (welcomed_) {
    state_ = PeerState::kUp;
  }
  if (state_ != before) {
    unlogged_disconnect_since_.reset();
    if (state_ == PeerState::kHung) LogInfo("{}: the peer is hung", endpoint_);
    if (state_ == PeerState::kDown) unlogged_disconnect_since_ = now_;
  }
  // At the end of a run roles exit one after another. The delay keeps a peer that exited just
  // before this process out of the log.
  if (unlogged_disconnect_since_ && now_ - *unlogged_disconnect_since_ >= network_.dead_after) {
    LogInfo("{}: the peer is down", endpoint_);
    unlogged_disconnect_since_.reset();
  }
}

}  // namespace troop
