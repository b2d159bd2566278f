// Implements the policy that calls an inference server.

#include "actors/inference/remote_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "actors/inference/messages.h"
#include "core/base/log.h"
#include "net/wire/codec.h"
#include "net/wire/shared_memory.h"

namespace troop {
namespace {

constexpr Duration kPatience = Seconds(10);    // deadline of a call
constexpr Duration kPause = Milliseconds(50);  // between calls

// Validates actions from the network: environments do not check them.
Status CheckRange(const ActionSpec& spec, const ConstTensor& action) {
  if (spec.discrete()) {
    const auto good = [&spec](std::int32_t a) { return a >= 0 && a < spec.count; };
    if (std::ranges::all_of(action.as<std::int32_t>(), good)) return Status::Ok();
  } else {
    const auto values = action.as<float>();
    const std::size_t size = spec.low.size();
    bool good = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      good = good && values[i] >= spec.low[i % size] && values[i] <= spec.high[i % size];
    }
    if (good) return Status::Ok();
  }
  return DataLoss("an action is out of range");
}

}  // namespace

RemotePolicy::RemotePolicy(const TensorSpec& observation, const ActionSpec& action,
                           std::int64_t outputs)
    : observation_(observation), action_(action), outputs_(outputs) {}

// Copies the observations, because the request may be sent again later.
void RemotePolicy::Submit(ConstTensor observation, std::span<const ExploreKey> keys) {
  asked_ = {CopyToSharedBuffer(observation.bytes()), Buffer::Copy(std::as_bytes(keys))};
  rows_ = std::int64_t(keys.size());
  next_try_ = now_;
  Send();
}

// Sends the pending request, at most once per kPause.
void RemotePolicy::Send() {
  if (now_ < next_try_) return;
  next_try_ = now_ + kPause;
  Message message{.type = MessageType::kInfer, .parts = asked_};
  // A full window is retried; other errors are permanent.
  const Result<Ticket> sent = channel_->Send(message, now_ + kPatience);
  if (sent.ok()) {
    ticket_ = *sent;
  } else if (sent.status().code() != Code::kResourceExhausted) {
    status_ = sent.status();
  }
}

// Temporary errors are retried with the same keys; a rejected request is permanent.
const PolicyOutput* RemotePolicy::Poll() {
  if (asked_.empty() || !status_.ok()) return nullptr;
  if (ticket_ == 0) {
    Send();
    if (ticket_ == 0) return nullptr;
  }
  std::optional<Result<Message>> answer = channel_->Poll(ticket_);
  if (!answer) return nullptr;
  ticket_ = 0;
  const Status status = answer->ok() ? Receive(**answer) : answer->status();
  if (status.ok()) {
    asked_.clear();
    return &output_;
  }
  // The server rejects the request itself; a retry would fail again.
  if (status.code() == Code::kInvalidArgument || status.code() == Code::kFailedPrecondition) {
    status_ = status.WithContext("the inference server");
    return nullptr;
  }
  next_try_ = now_ + kPause;
  if (std::has_single_bit(std::uint64_t(++retries_))) {
    LogWarning("no actions from the inference server: {}; retrying ({} retries so far)",
               status.message(), retries_);
  }
  return nullptr;
}

// Checks all sizes against the request before the views are made.
Status RemotePolicy::Receive(const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const InferReplyBody body, DecodeBody<InferReplyBody>(message.body));
  const TensorSpec action = action_.tensor();
  // Sizes of the reply's parts: action, q, q_taken, q_max.
  const TensorSpec specs[] = {{action.dtype, action.shape.Prepend(rows_)},
                              {DType::kF32, {rows_, outputs_}},
                              {DType::kF32, {rows_}},
                              {DType::kF32, {rows_}}};
  if (message.parts.size() != std::size(specs)) {
    return DataLoss("the reply has {} parts, must be {}", message.parts.size(), std::size(specs));
  }
  for (std::size_t i = 0; i < std::size(specs); ++i) {
    if (message.parts[i].size() == specs[i].bytes()) continue;
    return DataLoss("part {} of the reply has {} bytes, must be {}", i, message.parts[i].size(),
                    specs[i].bytes());
  }
  TROOP_RETURN_IF_ERROR(CheckRange(action_, ConstTensor(message.parts[0], specs[0])));
  // The views below refer to these buffers.
  answered_ = message.parts;
  output_ = {ConstTensor(answered_[0], specs[0]), ConstTensor(answered_[1], specs[1]),
             ConstTensor(answered_[2], specs[2]), ConstTensor(answered_[3], specs[3]),
             body.version};
  return Status::Ok();
}

Status RemotePolicy::SetWeights(std::uint64_t, std::span<const float>) { return Status::Ok(); }

}  // namespace troop
