// Implements push deduplication with a 64-bit window per learner.
#include "paramserver/shard/push_dedup.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace troop {

// Snapshots are untrusted; lookups rely on the order.
Result<PushDedup> PushDedup::FromEntries(std::vector<Entry> entries) {
  if (entries.size() > kLearnersMax) {
    return DataLoss("a record of the pushes of {} learners, must be at most {}", entries.size(),
                    kLearnersMax);
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].learner <= entries[i - 1].learner) {
      return DataLoss("a record of pushes has learner {} after {}", entries[i].learner,
                      entries[i - 1].learner);
    }
  }
  PushDedup dedup;
  dedup.entries_ = std::move(entries);
  return dedup;
}

const PushDedup::Entry* PushDedup::Find(std::int32_t learner) const {
  const auto it = std::ranges::lower_bound(entries_, learner, {}, &Entry::learner);
  return it != entries_.end() && it->learner == learner ? &*it : nullptr;
}

// The limit bounds memory and the size of snapshots.
bool PushDedup::HasRoomFor(std::int32_t learner) const {
  return entries_.size() < kLearnersMax || Find(learner) != nullptr;
}

// Sequences older than the window count as settled: a learner has fewer pushes open.
PushDedup::Seen PushDedup::Lookup(const PushId& id) const {
  const Entry* entry = Find(id.learner);
  if (entry == nullptr || id.incarnation > entry->incarnation) return Seen::kNew;
  if (id.incarnation < entry->incarnation) return Seen::kFenced;
  if (id.sequence > entry->newest) return Seen::kNew;
  const std::uint64_t age = entry->newest - id.sequence;
  const bool settled = age >= kWindow || (entry->settled >> age & 1) != 0;
  return settled ? Seen::kSettled : Seen::kNew;
}

// Four cases: a new learner, a new incarnation, a new sequence (the window moves), an old sequence.
void PushDedup::Settle(const PushId& id) {
  TROOP_CHECK(Lookup(id) == Seen::kNew && HasRoomFor(id.learner), "learner {}, push {}", id.learner,
              id.sequence);
  const auto it = std::ranges::lower_bound(entries_, id.learner, {}, &Entry::learner);
  if (it == entries_.end() || it->learner != id.learner) {
    entries_.insert(it, {id.learner, id.incarnation, id.sequence, 1});
  } else if (id.incarnation > it->incarnation) {
    *it = {id.learner, id.incarnation, id.sequence, 1};
  } else if (id.sequence > it->newest) {
    const std::uint64_t ahead = id.sequence - it->newest;
    it->settled = (ahead < kWindow ? it->settled << ahead : 0) | 1;
    it->newest = id.sequence;
  } else {
    it->settled |= std::uint64_t{1} << (it->newest - id.sequence);
  }
}

// If the incarnations of two entries differ, the newer entry is kept; if they are equal, their
// union, aligned to the newer window.
Status PushDedup::Merge(const PushDedup& other) {
  for (const Entry& theirs : other.entries_) {
    if (!HasRoomFor(theirs.learner)) {
      return ResourceExhausted("the pushes of more than {} learners", kLearnersMax);
    }
    const auto it = std::ranges::lower_bound(entries_, theirs.learner, {}, &Entry::learner);
    if (it == entries_.end() || it->learner != theirs.learner) {
      entries_.insert(it, theirs);
    } else if (theirs.incarnation > it->incarnation) {
      *it = theirs;
    } else if (theirs.incarnation == it->incarnation) {
      const auto newest = std::max(it->newest, theirs.newest);
      // An entry's window relative to the newest sequence of both.
      const auto aligned = [newest](const Entry& entry) {
        const std::uint64_t ahead = newest - entry.newest;
        return ahead < kWindow ? entry.settled << ahead : 0;
      };
      it->settled = aligned(*it) | aligned(theirs);
      it->newest = newest;
    }
  }
  return Status::Ok();
}

}  // namespace troop
