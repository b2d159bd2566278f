// Implements the subscriber of all parameter shards. Synchronous shards are pulled in rounds until
// all have one version.
#include "paramserver/service/shard_subscriber.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/tensor/trajectory.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Rounds of pulls to get all shards at one version; a round fails only if an update happens during
// it.
constexpr int kRoundsMax = 16;
// Time without an update after which unequal versions are considered permanent.
constexpr Duration kAtRest = Seconds(2);

// True for transient errors: the server was away, lost the call, is no longer the primary, or has
// another shard map, which the coordinator will announce.
bool MayTryAgain(Code code) {
  return code == Code::kDeadlineExceeded || code == Code::kUnavailable ||
         code == Code::kResourceExhausted || code == Code::kCancelled ||
         code == Code::kFailedPrecondition;
}

}  // namespace

ShardSubscriber::ShardSubscriber(ShardMap map, std::vector<std::unique_ptr<Channel>> channels,
                                 bool synchronous, std::unique_ptr<ShardResolver> resolver)
    : map_(std::move(map)), synchronous_(synchronous), resolver_(std::move(resolver)) {
  Remap(map_, std::move(channels));
}

// An open request is repeated with the new map; received parts are discarded.
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
    if (requesting_) RequestFrom(&shards_.back(), 0);
  }
  rounds_ = 0;
}

// An open request is repeated at the new process.
void ShardSubscriber::Replace(std::size_t shard, std::unique_ptr<Channel> channel) {
  Shard& place = shards_[shard];
  const bool asked = std::exchange(place.ticket, 0) != 0;
  place.channel = std::move(channel);
  if (asked) RequestFrom(&place, 0);
}

void ShardSubscriber::Request(Time) {
  if (requesting_ || !error_.ok()) return;
  requesting_ = true;
  request_failed_ = false;
  rounds_ = 0;
  for (Shard& shard : shards_) RequestFrom(&shard, 0);
}

// A failed send counts as a failed reply.
void ShardSubscriber::RequestFrom(Shard* shard, std::uint64_t exact) {
  Message message{
      .type = MessageType::kShardPull,
      .body = EncodeBody(ShardPullBody{map_.epoch(), shard->version, exact, shard->lineage})};
  const auto ticket = shard->channel->Send(message, kForever);
  if (ticket.ok()) {
    shard->ticket = *ticket;
  } else {
    TakeReply(shard, ticket.status());
  }
}

// A round ends when all shards have replied.
std::optional<WeightSnapshot> ShardSubscriber::Poll(Time now) {
  if (resolver_) {
    const Status found = resolver_->Update(this);
    if (!found.ok() && error_.ok()) error_ = found;
  }
  if (!requesting_) return std::nullopt;
  bool open = false;
  for (Shard& shard : shards_) {
    if (shard.ticket == 0) continue;
    const auto answer = shard.channel->Poll(shard.ticket);
    if (answer) {
      shard.ticket = 0;
      TakeReply(&shard, *answer);
    }
    open = open || shard.ticket != 0;
  }
  return open ? std::nullopt : Finish(now);
}

// kNotFound is not an error: the requested version was overwritten, and the next round asks again.
void ShardSubscriber::TakeReply(Shard* shard, const Result<Message>& answer) {
  Status status = answer.status();
  if (status.ok()) status = TakeParts(shard, *answer);
  if (status.ok() || status.code() == Code::kNotFound) return;  // that version was overwritten
  request_failed_ = true;
  if (!MayTryAgain(status.code()) && error_.ok()) error_ = status.WithContext("pull weights");
}

Status ShardSubscriber::TakeParts(Shard* shard, const Message& message) {
  if (message.type != MessageType::kShardPullReply) {
    return DataLoss("a reply of type {} is not a snapshot", int(message.type));
  }
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardPullReplyBody>(message.body));
  if (body.version == 0) return Status::Ok();
  std::size_t bytes = 0;
  for (const Buffer& part : message.parts) bytes += part.size();
  if (bytes != shard->bytes) {
    return DataLoss("{} bytes of parameters, the shard has {}", bytes, shard->bytes);
  }
  shard->parts = message.parts;
  shard->version = body.version;
  shard->lineage = body.lineage;
  return Status::Ok();
}

// Returns true if all shards have one version. Otherwise it pulls again: in even rounds the lowest
// version from the shards that are ahead, which keep it until the update after next; in odd rounds
// the newest version from all.
bool ShardSubscriber::ReconcileVersions() {
  const auto lowest = std::ranges::min_element(shards_, {}, &Shard::version)->version;
  bool equal = true;
  for (Shard& shard : shards_) {
    if (shard.version == lowest) continue;
    equal = false;
    if (rounds_ < kRoundsMax) RequestFrom(&shard, rounds_ % 2 == 0 ? lowest : 0);
  }
  if (equal || rounds_ >= kRoundsMax) return equal;
  // The slowest shards may have advanced as well.
  for (Shard& shard : shards_) {
    if (shard.version == lowest && rounds_ % 2 == 1) RequestFrom(&shard, 0);
  }
  ++rounds_;
  return false;
}

// Ends a round. Without equal versions the request is given up, and a later one starts over.
std::optional<WeightSnapshot> ShardSubscriber::Finish(Time now) {
  const bool known = std::ranges::none_of(shards_, [](const Shard& s) { return s.version == 0; });
  if (request_failed_ || !known) {
    requesting_ = false;
    return std::nullopt;
  }
  if (synchronous_ && !ReconcileVersions()) {
    requesting_ = rounds_ < kRoundsMax;
    if (requesting_ || !VersionsStayUnequal(now)) return std::nullopt;
  }
  requesting_ = false;
  if (Versions() == delivered_) return std::nullopt;
  delivered_ = Versions();
  const auto lineage = std::ranges::max_element(shards_, {}, &Shard::lineage)->lineage;
  const auto lowest = std::ranges::min_element(shards_, {}, &Shard::version)->version;
  // Snapshot versions grow even if a shard was restored from an older one.
  version_ = std::max(version_ + 1, WeightsVersion(lineage, lowest));
  return WeightSnapshot{version_, Gather()};
}

// Lineage and version of every shard.
std::vector<std::uint64_t> ShardSubscriber::Versions() const {
  std::vector<std::uint64_t> versions;
  for (const Shard& shard : shards_) {
    versions.push_back(shard.lineage);
    versions.push_back(shard.version);
  }
  return versions;
}

// True if the versions have been unequal and unchanged for kAtRest.
bool ShardSubscriber::VersionsStayUnequal(Time now) {
  if (Versions() != unequal_versions_) {
    unequal_versions_ = Versions();
    unequal_since_ = now;
  }
  return now - unequal_since_ >= kAtRest;
}

// Copies the shards' parts into one arena. Part and range boundaries are independent.
Buffer ShardSubscriber::Gather() const {
  MutableBuffer value(std::size_t(map_.parameters()) * sizeof(float));
  for (const Shard& shard : shards_) {
    std::size_t part = 0, at = 0;  // position of the next byte to copy
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
