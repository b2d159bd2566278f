// Implements the transport-independent parts: role names, error replies, and Reply.
#include "net/network.h"

#include <utility>

#include "core/base/check.h"
#include "net/error.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Body of a kError message.
struct ErrorBody {
  std::int32_t code = 0;
  std::string text;
  template <class A>
  void serialize(A& a) {
    a(code, text);
  }
};

}  // namespace

// Names are part of key files, command lines and file names of a run; they must not change.
std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kCoordinator:
      return "coordinator";
    case Role::kActor:
      return "actor";
    case Role::kReplay:
      return "replay";
    case Role::kLearner:
      return "learner";
    case Role::kParamServer:
      return "paramserver";
    case Role::kEvaluator:
      return "evaluator";
    case Role::kInference:
      return "inference";
    case Role::kTool:
      return "tool";
  }
  return "unknown";
}

// Error reply: code and text of the status, in the body of a kError message.
Message MakeErrorMessage(const Status& status) {
  TROOP_CHECK(!status.ok(), "an ok Status is not an error");
  const ErrorBody body{static_cast<std::int32_t>(status.code()), status.message()};
  return {.type = MessageType::kError, .body = EncodeBody(body)};
}

Status ErrorOf(const Message& message) {
  const Result<ErrorBody> body = DecodeBody<ErrorBody>(message.body);
  if (!body.ok()) return body.status().WithContext("an error reply");
  // The code comes from the peer: its range is checked before the cast, and kOk is not an error.
  if (body->code <= 0 || body->code > static_cast<std::int32_t>(Code::kInternal)) {
    return DataLoss("an error reply has an invalid code {}: {}", body->code, body->text);
  }
  return Status(static_cast<Code>(body->code), body->text);
}

// A pending call fails before it is overwritten, so that its caller does not wait in vain.
Reply& Reply::operator=(Reply&& other) noexcept {
  if (this != &other) {
    if (sink_) Fail(Internal("the service dropped the call without an answer"));
    sink_ = std::move(other.sink_);
  }
  return *this;
}

// Answers for a service that lost the call, for example by an early return.
Reply::~Reply() {
  if (sink_) Fail(Internal("the service dropped the call without an answer"));
}

void Reply::Send(Message message) {
  TROOP_CHECK(sink_ != nullptr, "a call was answered twice");
  std::exchange(sink_, nullptr)->Answer(std::move(message));
}

void Reply::Fail(const Status& status) { Send(MakeErrorMessage(status)); }

}  // namespace troop
