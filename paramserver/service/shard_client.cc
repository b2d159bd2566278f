// Implements a learner's client of all parameter shards. Every open push keeps its message, so that
// it can be resent to the same or to another process.
#include "paramserver/service/shard_client.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/tensor/trajectory.h"
#include "kernels/elementwise/is_finite.h"
#include "kernels/optim/optimizer_step.h"
#include "net/wire/codec.h"
#include "paramserver/protocol/messages.h"

namespace troop {
namespace {

// True for transient errors: the server was away, or lost the call. Resending a push is safe: the
// shard settles it once.
bool MayTryAgain(Code code) {
  return code == Code::kUnavailable || code == Code::kResourceExhausted ||
         code == Code::kDeadlineExceeded || code == Code::kCancelled;
}

// Retry interval; keeps retries from starving a backup during takeover.
constexpr Duration kTryAgain = Milliseconds(10);

std::int64_t SizeOf(std::span<const ParamRange> ranges) {
  std::int64_t size = 0;
  for (const ParamRange& range : ranges) size += range.size();
  return size;
}

}  // namespace

ShardClient::ShardClient(ShardMap map, std::vector<std::unique_ptr<Channel>> channels,
                         const Options& options)
    : map_(std::move(map)), options_(options), value_(std::size_t(map_.parameters())) {
  TROOP_CHECK(channels.size() == map_.shards().size(), "{} channels to {} shards", channels.size(),
              map_.shards().size());
  TROOP_CHECK(
      options.pushes_open_max > 0 && std::uint64_t(options.pushes_open_max) < PushDedup::kWindow,
      "pushes_open_max is {}", options.pushes_open_max);
  shards_ = MakeShards(std::move(channels));
}

// Builds the per-shard state of map_: ranges, message parts, and one encoder per part.
std::vector<ShardClient::Shard> ShardClient::MakeShards(
    std::vector<std::unique_ptr<Channel>> channels) const {
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    Shard shard{.channel = std::move(channels[i]), .ranges = map_.RangesOf(map_.shards()[i])};
    shard.parts = CutIntoParts(shard.ranges);
    for (const auto& part : shard.parts) shard.encoders.emplace_back(options_.codec, SizeOf(part));
    shards.push_back(std::move(shard));
  }
  return shards;
}

// The shards start at version 0, so that the next pull fetches everything.
void ShardClient::Remap(ShardMap map, std::vector<std::unique_ptr<Channel>> channels) {
  TROOP_CHECK(channels.size() == map.shards().size() && map.parameters() == map_.parameters(),
              "{} channels to {} shards", channels.size(), map.shards().size());
  map_ = std::move(map);
  refused_ += pushes_open();
  Time deadline{};
  for (const Shard& shard : shards_) deadline = std::max(deadline, shard.pull_deadline);
  std::vector<Shard> shards = MakeShards(std::move(channels));
  MoveResiduals(&shards);
  shards_ = std::move(shards);
  for (Shard& shard : shards_) {
    shard.pull_wanted = pulling_;
    shard.pull_deadline = deadline;
  }
}

// Copies the error feedback residuals through a buffer over the whole arena, because old and new
// parts cut it differently.
void ShardClient::MoveResiduals(std::vector<Shard>* to) {
  if (options_.codec.codec == GradientCodec::kNone) return;
  std::vector<float> all(value_.size());
  // Calls `each` for every range of the shards, with its residual and its place in `all`.
  const auto visit = [&all](std::vector<Shard>* shards, const auto& each) {
    for (Shard& shard : *shards) {
      for (std::size_t i = 0; i < shard.parts.size(); ++i) {
        std::span<float> residual = shard.encoders[i].residual();
        for (const ParamRange& range : shard.parts[i]) {
          const auto size = std::size_t(range.size());
          each(residual.first(size), std::span(all).subspan(std::size_t(range.begin), size));
          residual = residual.subspan(size);
        }
      }
    }
  };
  using Floats = std::span<float>;
  visit(&shards_, [](Floats own, Floats whole) { std::ranges::copy(own, whole.begin()); });
  visit(to, [](Floats own, Floats whole) { std::ranges::copy(whole, own.begin()); });
}

// Keeps the first error.
void ShardClient::Fail(const Status& status, std::string_view what) {
  if (error_.ok()) error_ = status.WithContext(what);
}

// A ticket of 0 marks a push for resending; an open pull is requested again by Poll.
void ShardClient::Replace(std::size_t shard, std::unique_ptr<Channel> channel) {
  Shard& place = shards_[shard];
  place.channel = std::move(channel);
  place.pull = 0;
  place.send_after = {};
  for (OpenPush& push : place.pushes) push.ticket = 0;
}

// Pushes that the slowest shard has not settled.
std::size_t ShardClient::pushes_open() const {
  std::size_t open = 0;
  for (const Shard& shard : shards_) open = std::max(open, shard.pushes.size());
  return open;
}

Status ShardClient::RequestLeave(Time now) {
  leaving_ = true;
  const Status asked = RequestPull(now);
  if (!asked.ok()) leaving_ = false;
  return asked;
}

// The deadline covers the wait for other learners.
Status ShardClient::RequestPull(Time now) {
  TROOP_CHECK(!pulling_, "a pull is open");
  TROOP_RETURN_IF_ERROR(error_);
  pulling_ = true;
  for (Shard& shard : shards_) {
    shard.pull_wanted = true;
    shard.changed = false;
    shard.pull_deadline = now + options_.answer_within;
    SendPull(&shard);
  }
  return Status::Ok();
}

// True if a push waits to be sent or resent.
bool ShardClient::HasUnsent(const Shard& shard) {
  return std::ranges::find(shard.pushes, Ticket{0}, &OpenPush::ticket) != shard.pushes.end();
}

// Sent after the pushes, so that the pulled value includes them.
void ShardClient::SendPull(Shard* shard) {
  if (!shard->pull_wanted || shard->pull != 0 || HasUnsent(*shard)) return;
  Message message{
      .type = MessageType::kShardPull,
      .body = EncodeBody(ShardPullBody{map_.epoch(), shard->version, 0, shard->lineage, leaving_})};
  const auto ticket = shard->channel->Send(message, shard->pull_deadline);
  if (ticket.ok()) {
    shard->pull = *ticket;
  } else if (!MayTryAgain(ticket.status().code())) {
    Fail(ticket.status(), "pull parameters");
  }
}

// Bounds memory: each open push holds its encoded gradient.
bool ShardClient::CanPush() const {
  return error_.ok() && std::ranges::all_of(shards_, [this](const Shard& shard) {
           return shard.pushes.size() < std::size_t(options_.pushes_open_max);
         });
}

// Version of the shard that is furthest ahead; see ShardPushBody::step.
std::uint64_t ShardClient::furthest() const {
  return std::ranges::max_element(shards_, {}, &Shard::version)->version;
}

// Encodes the gradient of one shard part by part. Parts that span several ranges are gathered
// first.
Result<Message> ShardClient::MakePush(Shard* shard, std::span<const float> gradient,
                                      float learning_rate, float loss, float norm) {
  ShardPushBody body{.sequence = sequence_ + 1,
                     .epoch = map_.epoch(),
                     .clock = shard->version,
                     .step = furthest(),
                     .learning_rate = learning_rate,
                     .loss = loss,
                     .norm = norm};
  Message message{.type = MessageType::kShardPush};
  for (std::size_t i = 0; i < shard->parts.size(); ++i) {
    const std::vector<ParamRange>& part = shard->parts[i];
    std::span<const float> values =
        gradient.subspan(std::size_t(part[0].begin), std::size_t(part[0].size()));
    if (part.size() > 1) {
      gathered_.clear();
      for (const ParamRange& range : part) {
        gathered_.insert(gathered_.end(), gradient.begin() + range.begin,
                         gradient.begin() + range.end);
      }
      values = gathered_;
    }
    TROOP_ASSIGN_OR_RETURN(CodedGradient coded, shard->encoders[i].Encode(values));
    message.parts.push_back(std::move(coded.payload));
    body.parts.push_back(std::move(coded));
  }
  message.body = EncodeBody(body);
  return message;
}

Status ShardClient::Push(Time now, std::span<const float> gradient, float learning_rate,
                         float loss) {
  TROOP_CHECK(CanPush() && gradient.size() == value_.size(), "{} elements, not {}", gradient.size(),
              value_.size());
  // Checked before any encoder adds it to its residual; encoders without residuals check it
  // themselves.
  const bool dense = options_.codec.codec == GradientCodec::kNone;
  if (const std::size_t bad = dense ? gradient.size() : FirstNonFinite(gradient);
      bad != gradient.size()) {
    return DataLoss("element {} of a gradient is {}, must be finite; nothing was pushed", bad,
                    gradient[bad]);
  }
  const double squares = OptimizerKernelsFor(BestCpuLevel())
                             .sum_squares(std::int64_t(gradient.size()), gradient.data());
  // All messages are built before any is sent: an error leaves nothing half-pushed.
  std::vector<Message> messages;
  for (Shard& shard : shards_) {
    TROOP_ASSIGN_OR_RETURN(messages.emplace_back(), MakePush(&shard, gradient, learning_rate, loss,
                                                             float(std::sqrt(squares))));
  }
  ++sequence_;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    for (const Buffer& part : messages[i].parts) traffic_.pushed_bytes += double(part.size());
    shards_[i].pushes.push_back({0, std::move(messages[i]), now, now + options_.answer_within});
    SendPushes(&shards_[i]);
  }
  return Status::Ok();
}

// Sent in order: a later push never overtakes an earlier one.
void ShardClient::SendPushes(Shard* shard) {
  for (OpenPush& push : shard->pushes) {
    if (push.ticket != 0) continue;
    Message copy = push.message;  // the payloads are shared
    const auto ticket = shard->channel->Send(copy, push.deadline);
    if (ticket.ok()) {
      push.ticket = *ticket;
    } else {
      if (!MayTryAgain(ticket.status().code())) Fail(ticket.status(), "push a gradient");
      return;
    }
  }
}

// Pushes before pulls, so that a pull does not overtake them.
void ShardClient::Poll(Time now) {
  for (Shard& shard : shards_) {
    PollPushes(&shard, now);
    if (shard.pull_wanted) PollPull(&shard, now);
    if (now < shard.send_after) continue;
    SendPushes(&shard);
    SendPull(&shard);
  }
}

// A reply settles a push (applied or dropped), kFailedPrecondition refuses it, a transient error
// resends it, and any other error is permanent.
void ShardClient::PollPushes(Shard* shard, Time now) {
  for (std::size_t i = 0; i < shard->pushes.size();) {
    OpenPush& push = shard->pushes[i];
    const auto answer = push.ticket == 0 ? std::nullopt : shard->channel->Poll(push.ticket);
    if (answer && answer->ok()) {
      const auto body = DecodeBody<ShardPushReplyBody>((**answer).body);
      if (!body.ok()) Fail(body.status(), "push a gradient");
      // Outcomes kHeld and kRepeated were applied, the others dropped.
      const bool counts = body.ok() && body->outcome <= 1;  // kHeld, kRepeated
      ++(counts ? applied_ : dropped_);
    } else if (answer && answer->status().code() == Code::kFailedPrecondition) {
      ++refused_;
    } else if (answer && !MayTryAgain(answer->status().code())) {
      Fail(answer->status(), "push a gradient");
    } else {
      if (answer) push.ticket = 0, shard->send_after = now + kTryAgain;
      if (now >= push.deadline) {
        Fail(DeadlineExceeded("not settled in time; other learners may be stuck"),
             "push a gradient");
      }
      ++i;
      continue;
    }
    const std::size_t open = pushes_open();
    const Time since = push.since;
    shard->pushes.erase(shard->pushes.begin() + std::ptrdiff_t(i));
    // This was the last shard to answer the push.
    if (pushes_open() < open) traffic_.push_s += ToSeconds(now - since);
  }
}

// A pull that overtook a resent push is repeated, because its value lacks that push.
void ShardClient::PollPull(Shard* shard, Time now) {
  const auto answer = shard->pull == 0 ? std::nullopt : shard->channel->Poll(shard->pull);
  if (answer) shard->pull = 0;
  if (answer && answer->ok()) {
    if (HasUnsent(*shard)) return;  // overtook a push that is resent: pull again
    shard->pull_wanted = false;
    const Status status = TakeParts(shard, **answer);
    if (!status.ok()) Fail(status, "pull parameters");
  } else if (answer && answer->status().code() != Code::kFailedPrecondition &&
             !MayTryAgain(answer->status().code())) {
    Fail(answer->status(), "pull parameters");
  } else if (answer) {  // also if the shard has another map, until Remap
    shard->send_after = now + kTryAgain;
  } else if (now >= shard->pull_deadline) {
    Fail(DeadlineExceeded("no reply in time; other learners may be stuck"), "pull parameters");
  }
}

// Copies the received parts into the shard's ranges. Part and range boundaries are independent.
Status ShardClient::TakeParts(Shard* shard, const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardPullReplyBody>(message.body));
  if (body.version == 0) {
    return message.parts.empty() ? Status::Ok() : DataLoss("a reply with parts but no version");
  }
  const std::size_t want = std::size_t(SizeOf(shard->ranges)) * sizeof(float);
  std::size_t size = 0;
  for (const Buffer& part : message.parts) size += part.size();
  if (size != want) return DataLoss("{} bytes of parameters, the shard has {}", size, want);
  std::size_t part = 0, at = 0;  // position of the next byte to copy
  for (const ParamRange& range : shard->ranges) {
    auto* to = reinterpret_cast<std::byte*>(&value_[std::size_t(range.begin)]);
    for (std::size_t left = std::size_t(range.size()) * sizeof(float); left > 0;) {
      const Buffer& from = message.parts[part];
      const std::size_t count = std::min(left, from.size() - at);
      std::memcpy(to, from.data() + at, count);
      to += count, at += count, left -= count;
      if (at == from.size()) ++part, at = 0;
    }
  }
  traffic_.pulled_bytes += double(size);
  shard->version = body.version;
  shard->lineage = body.lineage;
  shard->changed = true;
  return Status::Ok();
}

// The reported version is the oldest of the shards', so that staleness is never underestimated.
std::optional<ShardClient::Pulled> ShardClient::TakePull() {
  const bool open = std::ranges::any_of(shards_, &Shard::pull_wanted);
  if (!pulling_ || open || !error_.ok()) return std::nullopt;
  pulling_ = leaving_ = false;
  const auto oldest = std::ranges::min_element(shards_, {}, &Shard::version);
  const bool changed = std::ranges::any_of(shards_, &Shard::changed);
  const auto newest = std::ranges::max_element(shards_, {}, &Shard::lineage);
  return Pulled{.version = oldest->version,
                .weights_version = WeightsVersion(newest->lineage, oldest->version),
                .value = value_,
                .changed = changed};
}

}  // namespace troop
