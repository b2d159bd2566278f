#include "paramserver/shard_client.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/trajectory.h"
#include "kernels/finite.h"
#include "kernels/optimizer.h"
#include "net/codec.h"
#include "paramserver/wire.h"

namespace troop {
namespace {

// The server was away, or forgot the call; pushes are settled once, however often they are sent.
bool MayTryAgain(Code code) {
  return code == Code::kUnavailable || code == Code::kResourceExhausted ||
         code == Code::kDeadlineExceeded || code == Code::kCancelled;
}

// What asks again and again must not keep busy who is about to take over.
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
      options.pushes_open_max > 0 && std::uint64_t(options.pushes_open_max) < PushLedger::kWindow,
      "{} pushes open", options.pushes_open_max);
  shards_ = MakeShards(std::move(channels));
}

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

void ShardClient::MoveResiduals(std::vector<Shard>* to) {
  if (options_.codec.codec == GradientCodec::kNone) return;
  std::vector<float> all(value_.size());
  // Of every element of these shards, in order: its residual, and its place among all.
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

void ShardClient::Fail(const Status& status, std::string_view what) {
  if (error_.ok()) error_ = status.WithContext(what);
}

void ShardClient::Replace(std::size_t shard, std::unique_ptr<Channel> channel) {
  Shard& place = shards_[shard];
  place.channel = std::move(channel);
  place.pull = 0;
  place.send_after = {};
  for (OpenPush& push : place.pushes) push.ticket = 0;
}

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

bool ShardClient::HasUnsent(const Shard& shard) {
  return std::ranges::find(shard.pushes, Ticket{0}, &OpenPush::ticket) != shard.pushes.end();
}

// Behind the pushes: what comes has them in it.
void ShardClient::SendPull(Shard* shard) {
  if (!shard->pull_wanted || shard->pull != 0 || HasUnsent(*shard)) return;
  Message message{
      .type = MessageType::kShardPull,
      .body = EncodeBody(ShardPullBody{map_.epoch(), shard->version, 0, shard->course, leaving_})};
  const auto ticket = shard->channel->Send(message, shard->pull_deadline);
  if (ticket.ok()) {
    shard->pull = *ticket;
  } else if (!MayTryAgain(ticket.status().code())) {
    Fail(ticket.status(), "pull parameters");
  }
}

bool ShardClient::CanPush() const {
  return error_.ok() && std::ranges::all_of(shards_, [this](const Shard& shard) {
           return shard.pushes.size() < std::size_t(options_.pushes_open_max);
         });
}

std::uint64_t ShardClient::furthest() const {
  return std::ranges::max_element(shards_, {}, &Shard::version)->version;
}

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
  // Before any encoder has it in its residual; where they have none, each looks itself.
  const bool dense = options_.codec.codec == GradientCodec::kNone;
  if (const std::size_t bad = dense ? gradient.size() : FirstUnfinite(gradient);
      bad != gradient.size()) {
    return DataLoss("element {} of a gradient is {}; it can't be pushed", bad, gradient[bad]);
  }
  const double squares = OptimizerKernelsFor(BestCpuLevel())
                             .sum_squares(std::int64_t(gradient.size()), gradient.data());
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

// In order: a later push never overtakes an earlier one.
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

void ShardClient::Poll(Time now) {
  for (Shard& shard : shards_) {
    PollPushes(&shard, now);
    if (shard.pull_wanted) PollPull(&shard, now);
    if (now < shard.send_after) continue;
    SendPushes(&shard);
    SendPull(&shard);
  }
}

void ShardClient::PollPushes(Shard* shard, Time now) {
  for (std::size_t i = 0; i < shard->pushes.size();) {
    OpenPush& push = shard->pushes[i];
    const auto answer = push.ticket == 0 ? std::nullopt : shard->channel->Poll(push.ticket);
    if (answer && answer->ok()) {
      const auto body = DecodeBody<ShardPushReplyBody>((**answer).body);
      if (!body.ok()) Fail(body.status(), "push a gradient");
      const bool counts = body.ok() && body->outcome <= 1;  // kHeld, kRepeated
      ++(counts ? applied_ : dropped_);
    } else if (answer && answer->status().code() == Code::kFailedPrecondition) {
      ++refused_;
    } else if (answer && !MayTryAgain(answer->status().code())) {
      Fail(answer->status(), "push a gradient");
    } else {
      if (answer) push.ticket = 0, shard->send_after = now + kTryAgain;
      if (now >= push.deadline) {
        Fail(DeadlineExceeded("not settled in time; others may be stuck"), "push a gradient");
      }
      ++i;
      continue;
    }
    const std::size_t open = pushes_open();
    const Time since = push.since;
    shard->pushes.erase(shard->pushes.begin() + std::ptrdiff_t(i));
    // The last shard to answer this push.
    if (pushes_open() < open) traffic_.push_s += ToSeconds(now - since);
  }
}

void ShardClient::PollPull(Shard* shard, Time now) {
  const auto answer = shard->pull == 0 ? std::nullopt : shard->channel->Poll(shard->pull);
  if (answer) shard->pull = 0;
  if (answer && answer->ok()) {
    if (HasUnsent(*shard)) return;  // it overtook a push that is to be made again: once more
    shard->pull_wanted = false;
    const Status status = TakeParts(shard, **answer);
    if (!status.ok()) Fail(status, "pull parameters");
  } else if (answer && answer->status().code() != Code::kFailedPrecondition &&
             !MayTryAgain(answer->status().code())) {
    Fail(answer->status(), "pull parameters");
  } else if (answer) {  // also from one with another map, of which Remap will tell
    shard->send_after = now + kTryAgain;
  } else if (now >= shard->pull_deadline) {
    Fail(DeadlineExceeded("no answer in time; others may be stuck"), "pull parameters");
  }
}

Status ShardClient::TakeParts(Shard* shard, const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardPullReplyBody>(message.body));
  if (body.version == 0) {
    return message.parts.empty() ? Status::Ok() : DataLoss("parts of no version");
  }
  const std::size_t want = std::size_t(SizeOf(shard->ranges)) * sizeof(float);
  std::size_t size = 0;
  for (const Buffer& part : message.parts) size += part.size();
  if (size != want) return DataLoss("{} bytes of parameters; the shard has {}", size, want);
  std::size_t part = 0, at = 0;  // what is copied next
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
  shard->course = body.course;
  shard->changed = true;
  return Status::Ok();
}

std::optional<ShardClient::Pulled> ShardClient::TakePull() {
  const bool open = std::ranges::any_of(shards_, &Shard::pull_wanted);
  if (!pulling_ || open || !error_.ok()) return std::nullopt;
  pulling_ = leaving_ = false;
  const auto oldest = std::ranges::min_element(shards_, {}, &Shard::version);
  const bool changed = std::ranges::any_of(shards_, &Shard::changed);
  const auto newest = std::ranges::max_element(shards_, {}, &Shard::course);
  return Pulled{.version = oldest->version,
                .weights_version = WeightsVersion(newest->course, oldest->version),
                .value = value_,
                .changed = changed};
}

}  // namespace troop
