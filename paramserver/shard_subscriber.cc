#include "paramserver/shard_subscriber.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/trajectory.h"
#include "net/codec.h"

namespace troop {
namespace {

// Tries to get all shards at one version; each fails only where an update comes between.
constexpr int kRoundsMax = 16;
// Without an update for so long, versions that differ will not become the same.
constexpr Duration kAtRest = Seconds(2);

// The server was away, or forgot the call, or is none by now; or has another map, of which the
// coordinator will tell.
bool MayTryAgain(Code code) {
  return code == Code::kDeadlineExceeded || code == Code::kUnavailable ||
         code == Code::kResourceExhausted || code == Code::kCancelled ||
         code == Code::kFailedPrecondition;
}

}  // namespace

ShardSubscriber::ShardSubscriber(ShardMap map, std::vector<std::unique_ptr<Channel>> channels,
                                 bool in_step, std::unique_ptr<ShardFinder> finder)
    : map_(std::move(map)), in_step_(in_step), finder_(std::move(finder)) {
  Remap(map_, std::move(channels));
}

void ShardSubscriber::Remap(const ShardMap& map, std::vector<std::unique_ptr<Channel>> channels) {
  TROOP_CHECK(channels.size() == map.shards().size(), "{} channels to {} shards", channels.size(),
              map.shards().size());
  map_ = map;
  shards_.clear();
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::int32_t id = map_.shards()[i];
    shards_.push_back({.channel = std::move(channels[i]),
                       .ranges = map_.RangesOf(id),
                       .bytes = std::size_t(map_.LoadOf(id)) * sizeof(float)});
    if (requesting_) Ask(&shards_.back(), 0);
  }
  rounds_ = 0;
}

void ShardSubscriber::Replace(std::size_t shard, std::unique_ptr<Channel> channel) {
  Shard& place = shards_[shard];
  const bool asked = std::exchange(place.ticket, 0) != 0;
  place.channel = std::move(channel);
  if (asked) Ask(&place, 0);
}

void ShardSubscriber::Request(Time) {
  if (requesting_ || !error_.ok()) return;
  requesting_ = true;
  gave_up_ = false;
  rounds_ = 0;
  for (Shard& shard : shards_) Ask(&shard, 0);
}

void ShardSubscriber::Ask(Shard* shard, std::uint64_t exact) {
  Message message{
      .type = MessageType::kShardPull,
      .body = EncodeBody(ShardPullBody{map_.epoch(), shard->version, exact, shard->course})};
  const auto ticket = shard->channel->Send(message, kForever);
  if (ticket.ok()) {
    shard->ticket = *ticket;
  } else {
    Take(shard, ticket.status());
  }
}

std::optional<WeightSnapshot> ShardSubscriber::Poll(Time now) {
  if (finder_) {
    const Status found = finder_->Update(this);
    if (!found.ok() && error_.ok()) error_ = found;
  }
  if (!requesting_) return std::nullopt;
  bool open = false;
  for (Shard& shard : shards_) {
    if (shard.ticket == 0) continue;
    const auto answer = shard.channel->Poll(shard.ticket);
    if (answer) {
      shard.ticket = 0;
      Take(&shard, *answer);
    }
    open = open || shard.ticket != 0;
  }
  return open ? std::nullopt : Finish(now);
}

void ShardSubscriber::Take(Shard* shard, const Result<Message>& answer) {
  Status status = answer.status();
  if (status.ok()) status = TakeParts(shard, *answer);
  if (status.ok() || status.code() == Code::kNotFound) return;  // that version is gone already
  gave_up_ = true;
  if (!MayTryAgain(status.code()) && error_.ok()) error_ = status.WithContext("pull weights");
}

Status ShardSubscriber::TakeParts(Shard* shard, const Message& message) {
  if (message.type != MessageType::kShardPullReply) {
    return DataLoss("a reply of type {} is no snapshot", int(message.type));
  }
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardPullReplyBody>(message.body));
  if (body.version == 0) return Status::Ok();
  std::size_t bytes = 0;
  for (const Buffer& part : message.parts) bytes += part.size();
  if (bytes != shard->bytes) {
    return DataLoss("{} bytes of parameters; the shard has {}", bytes, shard->bytes);
  }
  shard->parts = message.parts;
  shard->version = body.version;
  shard->course = body.course;
  return Status::Ok();
}

// Whether all are at one version; else those ahead are asked for the lowest, which they keep until
// the update after next.
bool ShardSubscriber::Agree() {
  const auto lowest = std::ranges::min_element(shards_, {}, &Shard::version)->version;
  bool agree = true;
  for (Shard& shard : shards_) {
    if (shard.version == lowest) continue;
    agree = false;
    if (rounds_ < kRoundsMax) Ask(&shard, rounds_ % 2 == 0 ? lowest : 0);
  }
  if (agree || rounds_ >= kRoundsMax) return agree;
  // The lowest may have gone on as well.
  for (Shard& shard : shards_) {
    if (shard.version == lowest && rounds_ % 2 == 1) Ask(&shard, 0);
  }
  ++rounds_;
  return false;
}

std::optional<WeightSnapshot> ShardSubscriber::Finish(Time now) {
  const bool known = std::ranges::none_of(shards_, [](const Shard& s) { return s.version == 0; });
  if (gave_up_ || !known) {
    requesting_ = false;
    return std::nullopt;
  }
  if (in_step_ && !Agree()) {
    requesting_ = rounds_ < kRoundsMax;
    if (requesting_ || !DifferForGood(now)) return std::nullopt;
  }
  requesting_ = false;
  if (Versions() == given_) return std::nullopt;
  given_ = Versions();
  const auto course = std::ranges::max_element(shards_, {}, &Shard::course)->course;
  const auto lowest = std::ranges::min_element(shards_, {}, &Shard::version)->version;
  version_ = std::max(version_ + 1, WeightsVersion(course, lowest));
  return WeightSnapshot{version_, Gather()};
}

std::vector<std::uint64_t> ShardSubscriber::Versions() const {
  std::vector<std::uint64_t> versions;
  for (const Shard& shard : shards_) {
    versions.push_back(shard.course);
    versions.push_back(shard.version);
  }
  return versions;
}

bool ShardSubscriber::DifferForGood(Time now) {
  if (Versions() != differ_) {
    differ_ = Versions();
    differ_since_ = now;
  }
  return now - differ_since_ >= kAtRest;
}

Buffer ShardSubscriber::Gather() const {
  MutableBuffer value(std::size_t(map_.parameters()) * sizeof(float));
  for (const Shard& shard : shards_) {
    std::size_t part = 0, at = 0;  // what is copied next
    for (const ParamRange& range : shard.ranges) {
      std::byte* to = value.data() + std::size_t(range.begin) * sizeof(float);
      for (std::size_t left = std::size_t(range.size()) * sizeof(float); left > 0;) {
        const Buffer& from = shard.parts[part];
        const std::size_t count = std::min(left, from.size() - at);
        std::memcpy(to, from.data() + at, count);
        to += count, at += count, left -= count;
        if (at == from.size()) ++part, at = 0;
      }
    }
  }
  return std::move(value).Freeze();
}

}  // namespace troop
