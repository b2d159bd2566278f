// Implements the publisher and the subscriber of whole-model weights over one channel each. A call
// has no deadline: the channel resends it after a reconnect.
#include "paramserver/weights/weights_client.h"

#include <algorithm>
#include <utility>

#include "net/wire/codec.h"
#include "paramserver/protocol/messages.h"

namespace troop {
namespace {

// True for transient errors: the server was away, or lost the call in a restart.
bool MayTryAgain(Code code) {
  return code == Code::kDeadlineExceeded || code == Code::kUnavailable ||
         code == Code::kResourceExhausted;
}

// Keeps the first permanent error.
void NoteError(const Status& status, std::string_view what, Status* error) {
  if (!MayTryAgain(status.code()) && error->ok()) *error = status.WithContext(what);
}

// One publish in flight, one waiting: a slow server never blocks the learner.
class Publisher final : public WeightPublisher {
 public:
  explicit Publisher(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  // Overwrites a snapshot that still waits: only the newest matters.
  void Publish(WeightSnapshot snapshot) override {
    TROOP_CHECK(snapshot.version > 0, "version 0 means none");
    waiting_ = std::move(snapshot);
    SendWaiting();
  }

  void Poll(Time) override {
    if (ticket_ != 0) TakeAnswer();
    SendWaiting();
  }

  std::uint64_t acked_version() const override { return acked_version_; }
  Status error() const override { return error_; }

 private:
  // After a transient error the same snapshot is sent again, unless a newer one waits.
  void TakeAnswer() {
    const auto answer = channel_->Poll(ticket_);
    if (!answer) return;
    ticket_ = 0;
    WeightSnapshot sent = std::exchange(in_flight_, {});
    if (answer->ok()) {
      acked_version_ = std::max(acked_version_, sent.version);
    } else {
      NoteError(answer->status(), "publish weights", &error_);
      if (waiting_.version == 0) waiting_ = std::move(sent);  // resend, unless a newer one waits
    }
  }

  // At most one publish is in flight.
  void SendWaiting() {
    if (ticket_ != 0 || waiting_.version == 0 || !error_.ok() || !channel_->CanSend()) return;
    Message message{.type = MessageType::kPublish,
                    .body = EncodeBody(PublishBody{waiting_.version})};
    message.parts.push_back(waiting_.value);
    const auto ticket = channel_->Send(message, kForever);
    if (!ticket.ok()) return NoteError(ticket.status(), "publish weights", &error_);
    ticket_ = *ticket;
    in_flight_ = std::exchange(waiting_, {});
  }

  std::unique_ptr<Channel> channel_;
  WeightSnapshot waiting_;    // version 0: none
  WeightSnapshot in_flight_;  // valid while ticket_ is not 0
  Ticket ticket_ = 0;
  std::uint64_t acked_version_ = 0;
  Status error_;
};

// One pull in flight at a time.
class Subscriber final : public WeightSubscriber {
 public:
  explicit Subscriber(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  // No request after a permanent error.
  void Request(Time) override {
    if (ticket_ != 0 || !error_.ok()) return;
    Message message{.type = MessageType::kPull, .body = EncodeBody(PullBody{.known = version_})};
    const auto ticket = channel_->Send(message, kForever);
    if (!ticket.ok()) return NoteError(ticket.status(), "pull weights", &error_);
    ticket_ = *ticket;
  }

  bool requesting() const override { return ticket_ != 0; }

  std::optional<WeightSnapshot> Poll(Time) override {
    if (ticket_ == 0) return std::nullopt;
    auto answer = channel_->Poll(ticket_);
    if (!answer) return std::nullopt;
    ticket_ = 0;
    if (!answer->ok()) {
      NoteError(answer->status(), "pull weights", &error_);
      return std::nullopt;
    }
    return Take(std::move(**answer));
  }

  std::uint64_t version() const override { return version_; }
  std::uint64_t server_version() const override { return server_version_; }
  Status error() const override { return error_; }

 private:
  // Checks a reply and returns its snapshot if it is newer.
  std::optional<WeightSnapshot> Take(Message message) {
    const auto body = DecodeBody<PullReplyBody>(message.body);
    // A malformed reply is a permanent error: the server is not what it should be.
    const bool whole = body.ok() && message.type == MessageType::kPullReply &&
                       message.parts.size() == (body->version == 0 ? 0u : 1u) &&
                       (message.parts.empty() || message.parts[0].size() % sizeof(float) == 0);
    if (!whole) {
      NoteError(DataLoss("a reply of type {} with {} parts is not a snapshot", int(message.type),
                         message.parts.size()),
                "pull weights", &error_);
      return std::nullopt;
    }
    server_version_ = body->newest;
    if (body->version <= version_) return std::nullopt;
    version_ = body->version;
    Buffer value = std::move(message.parts[0]);
    // A small part may be unaligned within the message.
    const auto address = reinterpret_cast<std::uintptr_t>(value.data());
    if (address % alignof(float) != 0) value = Buffer::Copy(value.bytes());
    return WeightSnapshot{version_, std::move(value)};
  }

  std::unique_ptr<Channel> channel_;
  Ticket ticket_ = 0;
  std::uint64_t version_ = 0, server_version_ = 0;
  Status error_;
};

}  // namespace

std::unique_ptr<WeightPublisher> MakeWeightPublisher(std::unique_ptr<Channel> channel) {
  return std::make_unique<Publisher>(std::move(channel));
}

std::unique_ptr<WeightSubscriber> MakeWeightSubscriber(std::unique_ptr<Channel> channel) {
  return std::make_unique<Subscriber>(std::move(channel));
}

}  // namespace troop
