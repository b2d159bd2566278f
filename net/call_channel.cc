#include "net/call_channel.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "net/error.h"

namespace troop {
namespace {

// How soon a Hello or a call that found no room is tried again.
constexpr Duration kHelloRetry = Milliseconds(10);
constexpr Duration kFullRetry = Milliseconds(1);
// A server to which this incarnation is still unknown asks the coordinator meanwhile.
constexpr Duration kRefusedRetry = Milliseconds(20);

}  // namespace

CallChannel::CallChannel(std::string endpoint, const ChannelOptions& channel,
                         const NetworkOptions& network, std::uint64_t id, bool check_parts)
    : endpoint_(std::move(endpoint)),
      options_(channel),
      network_(network),
      id_(id),
      part_flag_(check_parts ? kFlagPartsChecked : 0) {}

Result<Ticket> CallChannel::Send(Message& message, Time deadline) {
  if (failed_) return *failed_;
  TROOP_RETURN_IF_ERROR(CheckSendable(
      message, {.message_bytes_max = network_.message_bytes_max, .parts_max = network_.parts_max}));
  const std::size_t bytes = PayloadBytes(message);
  if (in_flight() >= options_.window) {
    return ResourceExhausted("{}: {} calls are open, the window holds {}; poll first", endpoint_,
                             in_flight(), options_.window);
  }
  // A call larger than the whole window may go alone.
  if (open_ > 0 && open_bytes_ + bytes > options_.window_bytes) {
    return ResourceExhausted("{}: {} bytes are in flight, the window holds {}; poll first",
                             endpoint_, open_bytes_, options_.window_bytes);
  }
  if (calls_.end() - oldest_open_ >= kSequenceSpanMax) {
    return ResourceExhausted("{}: {} calls followed one that is still open; poll first", endpoint_,
                             kSequenceSpanMax);
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
  if (envelope.channel != id_) return;  // not ours: a confused or hostile server
  last_heard_ = now;
  if (envelope.flags & kFlagWelcome) {
    if (welcomed_ && session_ == envelope.session) return;
    session_ = envelope.session;
    connected_ = welcomed_ = welcomed_once_ = true;
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
  if (sequence == 0) {
    const Status error = ErrorOf(message).WithContext(endpoint_);
    if (error.code() == Code::kAborted || error.code() == Code::kFailedPrecondition) {
      Fail(error);
    } else if (error.code() == Code::kDeadlineExceeded) {
      // Forgotten: what was sent may have happened or not; the rest can start anew.
      if (session_ != 0) FailOpen(error, true);
      session_ = 0;
      welcomed_ = false;
      next_hello_ = now_;
    }
    if (error.code() == Code::kUnavailable) {  // not admitted yet
      welcomed_ = false;
      next_hello_ = std::min(next_hello_, now_ + kRefusedRetry);
    }
    return;  // others are temporary, too: Hello is repeated
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

// A call that waits to be sent again may have been handled by the session that has its first copy.
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

void CallChannel::Release(Call& call) {
  --open_;
  open_bytes_ -= call.bytes;
  call.request = {};
}

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
  // Time in which nobody pumped is not the peer's silence.
  if (now - now_ > network_.heartbeat_every) last_heard_ += now - now_ - network_.heartbeat_every;
  last_heard_ = std::min(last_heard_, now);
  now_ = now;
  const int open_before = open_;
  const std::uint64_t sent_before = next_send_;
  if (failed_) {
    // Nothing more to say.
  } else if (!welcomed_) {
    if (now >= next_hello_) {
      next_hello_ = now + (Control(kFlagHello) ? network_.heartbeat_every : kHelloRetry);
    }
  } else {
    Flush();
    if (now - last_sent_ >= network_.heartbeat_every && !Control(kFlagBeat)) {
      last_sent_ += kHelloRetry;  // no room: again soon
    }
  }
  Expire();
  UpdateState();
  return open_ != open_before || next_send_ != sent_before;
}

Time CallChannel::next_tick() const {
  if (failed_) return kForever;
  Time next = first_deadline_;
  if (!welcomed_) return std::min(next, next_hello_);
  if (next_send_ != calls_.end()) next = std::min(next, now_ + kFullRetry);
  if (state_ == PeerState::kUp) {
    next = std::min(next, last_heard_ + network_.dead_after + Milliseconds(1));
  }
  return std::min(next, last_sent_ + network_.heartbeat_every);
}

void CallChannel::UpdateState() {
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
    unsaid_since_.reset();
    if (state_ == PeerState::kHung) LogInfo("{}: the peer is hung", endpoint_);
    if (state_ == PeerState::kDown) unsaid_since_ = now_;
  }
  // At the end of a run roles leave one after the other: a peer that left a moment before this
  // process is no fault.
  if (unsaid_since_ && now_ - *unsaid_since_ >= network_.dead_after) {
    LogInfo("{}: the peer is down", endpoint_);
    unsaid_since_.reset();
  }
}

}  // namespace troop
