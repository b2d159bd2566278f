// Implements the five sync modes as rules over member clocks and held pushes.
#include "paramserver/shard/sync_policy.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/config/enum_names.h"

namespace troop {

// Rejects options that do not apply to the mode, rather than ignoring them.
Status CheckSyncOptions(const SyncOptions& options) {
  const std::string_view name = EnumName(options.mode);
  if (options.learners < 1)
    return InvalidArgument("sync: the number of learners is {}, must be at least 1",
                           options.learners);
  const bool k_of_n = options.mode == SyncMode::kKOfN;
  if (k_of_n && options.k < 1)
    return InvalidArgument("sync: k is {}, must be at least 1", options.k);
  if (k_of_n && !options.per_batch && options.k > options.learners) {
    return InvalidArgument(
        "sync: k is {}, must be at most the number of learners ({}); lower k, or set per_batch",
        options.k, options.learners);
  }
  if (!k_of_n && (options.cancel || options.per_batch)) {
    return InvalidArgument("sync: cancel and per_batch need mode \"k_of_n\", not \"{}\"", name);
  }
  if (options.mode != SyncMode::kSsp && options.staleness != 0) {
    return InvalidArgument("sync: a staleness bound needs mode \"ssp\", not \"{}\"", name);
  }
  if (options.mode != SyncMode::kAsync && options.warm_start_updates != 0) {
    return InvalidArgument("sync: a warm start needs mode \"async\", not \"{}\"", name);
  }
  const bool all_fresh = options.mode == SyncMode::kBsp || options.mode == SyncMode::kLocalSgd;
  if (all_fresh && options.staleness_discount) {
    return InvalidArgument("sync: mode \"{}\" has no stale gradients; disable damping", name);
  }
  return Status::Ok();
}

bool IsSynchronous(const SyncOptions& options) {
  return options.mode == SyncMode::kBsp || options.mode == SyncMode::kLocalSgd ||
         (options.mode == SyncMode::kSsp && options.staleness == 0);
}

SyncPolicy::SyncPolicy(const SyncOptions& options) : options_(options) {
  const Status status = CheckSyncOptions(options);
  TROOP_CHECK(status.ok(), "{}", status.ToString());
}

const SyncPolicy::Member* SyncPolicy::Find(std::int32_t learner) const {
  const auto it = std::ranges::lower_bound(members_, learner, {}, &Member::learner);
  return it != members_.end() && it->learner == learner ? &*it : nullptr;
}
SyncPolicy::Member* SyncPolicy::Find(std::int32_t learner) {
  return const_cast<Member*>(std::as_const(*this).Find(learner));
}

std::size_t SyncPolicy::live() const {
  return std::size_t(std::ranges::count(members_, true, &Member::live));
}

// 0 also if all members have left.
std::uint64_t SyncPolicy::min_clock() const {
  if (!started()) return 0;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Member& member : members_) {
    if (member.live) least = std::min(least, member.clock);
  }
  return least == std::numeric_limits<std::uint64_t>::max() ? 0 : least;
}

// Starting at the slowest clock, a late joiner neither blocks the others nor runs ahead.
void SyncPolicy::Join(std::int32_t learner) {
  const std::uint64_t clock = min_clock();
  Member* member = Find(learner);
  if (member == nullptr) {
    const auto at = std::ranges::upper_bound(members_, learner, {}, &Member::learner);
    members_.insert(at, {learner, true, clock});
  } else if (!member->live) {
    *member = {learner, true, clock};
  }
}

// A learner that never joined counts as joined and left, so that updates can start.
void SyncPolicy::Leave(std::int32_t learner) {
  if (Find(learner) == nullptr) Join(learner);
  Find(learner)->live = false;
}

bool SyncPolicy::Holds(std::int32_t learner) const {
  return std::ranges::find(held_, learner, &Arrival::learner) != held_.end();
}

// Modes that drop gradients of an older version.
bool SyncPolicy::cancels() const {
  switch (options_.mode) {
    case SyncMode::kBsp:
    case SyncMode::kLocalSgd:
      return true;  // only a learner that was away can be late
    case SyncMode::kKOfN:
      return options_.cancel;
    case SyncMode::kSsp:
      return options_.staleness == 0;
    case SyncMode::kAsync:
      return false;
  }
  return false;
}

// With s = 0 no learner may see half a clock: the pushes are held and applied together.
bool SyncPolicy::at_once() const {
  return options_.mode == SyncMode::kAsync ||
         (options_.mode == SyncMode::kSsp && options_.staleness > 0);
}

// Cases: not a member; a clock from the future (takeover); late; too far ahead (SSP); a second push
// for one update.
Status SyncPolicy::Check(const Arrival& arrival) const {
  const Member* member = Find(arrival.learner);
  if (member == nullptr || !member->live) {
    return FailedPrecondition("learner {} is not a member (its lease ended); join again",
                              arrival.learner);
  }
  if (arrival.clock > version_) {
    return FailedPrecondition(
        "learner {}: a push was computed at version {}, the newest is {}; pull again",
        arrival.learner, arrival.clock, version_);
  }
  if (cancels() && arrival.clock < version_) return Status::Ok();
  if (options_.mode == SyncMode::kSsp && at_once() &&
      member->clock > min_clock() + options_.staleness) {
    return FailedPrecondition("learner {} is {} pushes ahead, must be at most {}; pull first",
                              arrival.learner, member->clock - min_clock(), options_.staleness);
  }
  if (!at_once() && !options_.per_batch && Holds(arrival.learner)) {
    return FailedPrecondition("learner {} has already pushed for version {}; pull first",
                              arrival.learner, version_);
  }
  return Status::Ok();
}

// A dropped push only advances its learner's clock; if updates are joint, it is held as a
// contribution.
Result<SyncPolicy::Verdict> SyncPolicy::Arrive(const Arrival& arrival) {
  TROOP_RETURN_IF_ERROR(Check(arrival));
  if (cancels() && arrival.clock < version_) return Verdict::kLate;
  if (at_once() && arrival.dropped) {
    ++Find(arrival.learner)->clock;
    return Verdict::kAccepted;
  }
  held_.push_back(arrival);
  return Verdict::kAccepted;
}

// True if the held pushes make an update: at once; k of them; or one from every live member.
bool SyncPolicy::Due() const {
  if (held_.empty()) return false;
  if (at_once()) return true;
  if (!started()) return false;
  if (options_.mode == SyncMode::kKOfN && held_.size() >= std::size_t(options_.k)) return true;
  if (options_.per_batch) return live() == 0;
  return std::ranges::all_of(
      members_, [this](const Member& member) { return !member.live || Holds(member.learner); });
}

std::optional<SyncPolicy::Update> SyncPolicy::NextUpdate() {
  if (!Due()) return std::nullopt;
  // 1. Take one push, or all held ones, in the order of (learner, id).
  const std::size_t count = at_once() ? 1 : held_.size();
  std::vector<Arrival> taken(held_.begin(), held_.begin() + std::ptrdiff_t(count));
  held_.erase(held_.begin(), held_.begin() + std::ptrdiff_t(count));
  std::ranges::sort(taken, {}, [](const Arrival& a) { return std::pair(a.learner, a.id); });

  // 2. Weight each by its staleness.
  Update update;
  update.average_values = options_.mode == SyncMode::kLocalSgd;
  for (const Arrival& arrival : taken) {
    ++Find(arrival.learner)->clock;
    if (arrival.dropped) continue;
    const std::uint64_t staleness = version_ - arrival.clock;
    const bool damped = options_.staleness_discount && staleness > 1;
    update.terms.push_back({.learner = arrival.learner,
                            .id = arrival.id,
                            .staleness = staleness,
                            .weight = damped ? 1 / float(staleness) : 1.0f});
  }
  // An SSP push is a share of its clock's mean, so that s does not change the step size.
  const std::size_t parts =
      options_.mode == SyncMode::kSsp && at_once() ? live() : update.terms.size();
  update.scale = 1 / float(std::max<std::size_t>(parts, 1));
  ++version_;
  return update;
}

// kAsync blocks only for the warm start, SSP by clock distance, the others until the own push is
// applied.
bool SyncPolicy::MayPull(std::int32_t learner) const {
  const Member* member = Find(learner);
  if (member == nullptr || !member->live) return true;
  if (options_.mode == SyncMode::kAsync) {
    if (version_ >= options_.warm_start_updates) return true;
    return std::ranges::find(members_, true, &Member::live)->learner == learner;
  }
  if (at_once()) return member->clock <= min_clock() + options_.staleness;
  return options_.per_batch || !Holds(learner);
}

bool SyncPolicy::AreSorted(std::span<const Member> members) {
  return std::ranges::adjacent_find(members, std::ranges::greater_equal(), &Member::learner) ==
         members.end();
}

// Held pushes are dropped: they were not acknowledged.
void SyncPolicy::Restore(std::uint64_t version, std::span<const Member> members) {
  TROOP_CHECK(AreSorted(members), "{} members out of order", members.size());
  held_.clear();
  version_ = version;
  members_.assign(members.begin(), members.end());
}

}  // namespace troop
