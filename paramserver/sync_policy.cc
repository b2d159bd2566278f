#include "paramserver/sync_policy.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "core/check.h"

namespace troop {
namespace {

constexpr std::array<std::string_view, 5> kNames{"bsp", "k_of_n", "ssp", "async", "local_sgd"};

}  // namespace

std::string_view SyncModeName(SyncMode mode) { return kNames[std::size_t(mode)]; }

Result<SyncMode> ParseSyncMode(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return SyncMode(i);
  }
  return InvalidArgument(
      "sync mode \"{}\"; known are \"bsp\", \"k_of_n\", \"ssp\", \"async\", \"local_sgd\"", text);
}

Status CheckSyncOptions(const SyncOptions& options) {
  const std::string_view name = SyncModeName(options.mode);
  if (options.learners < 1)
    return InvalidArgument("sync: {} learners; 1 at least", options.learners);
  const bool k_of_n = options.mode == SyncMode::kKOfN;
  if (k_of_n && options.k < 1) return InvalidArgument("sync: k is {}; 1 at least", options.k);
  if (k_of_n && !options.per_batch && options.k > options.learners) {
    return InvalidArgument("sync: k = {} of {} learners, one push each; lower k, or count batches",
                           options.k, options.learners);
  }
  if (!k_of_n && (options.cancel || options.per_batch)) {
    return InvalidArgument("sync: only \"k_of_n\" cancels or counts batches, not \"{}\"", name);
  }
  if (options.mode != SyncMode::kSsp && options.staleness != 0) {
    return InvalidArgument("sync: only \"ssp\" has a staleness bound, not \"{}\"", name);
  }
  if (options.mode != SyncMode::kAsync && options.warm_start_updates != 0) {
    return InvalidArgument("sync: only \"async\" has a warm start, not \"{}\"", name);
  }
  const bool all_fresh = options.mode == SyncMode::kBsp || options.mode == SyncMode::kLocalSgd;
  if (all_fresh && options.damp_stale) {
    return InvalidArgument("sync: nothing is stale in \"{}\"; leave damping off", name);
  }
  return Status::Ok();
}

bool InStep(const SyncOptions& options) {
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

std::uint64_t SyncPolicy::min_clock() const {
  if (!started()) return 0;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Member& member : members_) {
    if (member.live) least = std::min(least, member.clock);
  }
  return least == std::numeric_limits<std::uint64_t>::max() ? 0 : least;
}

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

void SyncPolicy::Leave(std::int32_t learner) {
  if (Find(learner) == nullptr) Join(learner);
  Find(learner)->live = false;
}

bool SyncPolicy::Holds(std::int32_t learner) const {
  return std::ranges::find(held_, learner, &Arrival::learner) != held_.end();
}

bool SyncPolicy::cancels() const {
  switch (options_.mode) {
    case SyncMode::kBsp:
    case SyncMode::kLocalSgd:
      return true;  // only who was away can be late
    case SyncMode::kKOfN:
      return options_.cancel;
    case SyncMode::kSsp:
      return options_.staleness == 0;
    case SyncMode::kAsync:
      return false;
  }
  return false;
}

// With s = 0 nobody may see half a clock: its pushes are held and applied together.
bool SyncPolicy::at_once() const {
  return options_.mode == SyncMode::kAsync ||
         (options_.mode == SyncMode::kSsp && options_.staleness > 0);
}

Status SyncPolicy::Check(const Arrival& arrival) const {
  const Member* member = Find(arrival.learner);
  if (member == nullptr || !member->live) {
    return FailedPrecondition("learner {} takes no part now (its lease ended); join again",
                              arrival.learner);
  }
  if (arrival.clock > version_) {
    return FailedPrecondition("learner {}: a push computed at version {}, {} is newest; pull again",
                              arrival.learner, arrival.clock, version_);
  }
  if (cancels() && arrival.clock < version_) return Status::Ok();
  if (options_.mode == SyncMode::kSsp && at_once() &&
      member->clock > min_clock() + options_.staleness) {
    return FailedPrecondition("learner {} is {} pushes ahead, {} are allowed; pull first",
                              arrival.learner, member->clock - min_clock(), options_.staleness);
  }
  if (!at_once() && !options_.per_batch && Holds(arrival.learner)) {
    return FailedPrecondition("learner {} has pushed for version {}; pull first", arrival.learner,
                              version_);
  }
  return Status::Ok();
}

Result<SyncPolicy::Verdict> SyncPolicy::Arrive(const Arrival& arrival) {
  TROOP_RETURN_IF_ERROR(Check(arrival));
  if (cancels() && arrival.clock < version_) return Verdict::kLate;
  if (at_once() && arrival.dropped) {
    ++Find(arrival.learner)->clock;
    return Verdict::kTaken;
  }
  held_.push_back(arrival);
  return Verdict::kTaken;
}

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
  const std::size_t count = at_once() ? 1 : held_.size();
  std::vector<Arrival> taken(held_.begin(), held_.begin() + std::ptrdiff_t(count));
  held_.erase(held_.begin(), held_.begin() + std::ptrdiff_t(count));
  std::ranges::sort(taken, {}, [](const Arrival& a) { return std::pair(a.learner, a.id); });

  Update update;
  update.average_values = options_.mode == SyncMode::kLocalSgd;
  for (const Arrival& arrival : taken) {
    ++Find(arrival.learner)->clock;
    if (arrival.dropped) continue;
    const std::uint64_t staleness = version_ - arrival.clock;
    const bool damped = options_.damp_stale && staleness > 1;
    update.terms.push_back({.learner = arrival.learner,
                            .id = arrival.id,
                            .staleness = staleness,
                            .weight = damped ? 1 / float(staleness) : 1.0f});
  }
  // SSP's pushes are shares of a clock's mean, so that s does not change the step's size.
  const std::size_t parts =
      options_.mode == SyncMode::kSsp && at_once() ? live() : update.terms.size();
  update.scale = 1 / float(std::max<std::size_t>(parts, 1));
  ++version_;
  return update;
}

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

void SyncPolicy::Restore(std::uint64_t version, std::span<const Member> members) {
  TROOP_CHECK(AreSorted(members), "{} members out of order", members.size());
  held_.clear();
  version_ = version;
  members_.assign(members.begin(), members.end());
}

}  // namespace troop
