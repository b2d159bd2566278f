#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Permanently unique name of one push by one incarnation of a learner.
struct PushId {
  std::int32_t learner = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;  // from 1, one more with each push
  template <class A>
  void serialize(A& a) {
    a(learner, incarnation, sequence);
  }
  auto operator<=>(const PushId&) const = default;
};

// Deduplication of pushes in bounded memory: which pushes were settled (applied or dropped). Per
// learner it keeps the newest incarnation, its newest sequence, and a bitmap of the kWindow
// sequences below it. Snapshots and backup updates include it, so a push counts once even if it is
// retried at another process. Owner: the shard's loop. O(log learners) per call.
class PushDedup {
 public:
  // Upper bound on a learner's open pushes; older sequences count as settled.
  static constexpr std::uint64_t kWindow = 64;
  static constexpr std::size_t kLearnersMax = 4096;

  enum class Seen {
    kNew,
    kSettled,
    kFenced,  // of an incarnation that a newer one has replaced
  };
  struct Entry {
    std::int32_t learner = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t newest = 0;   // sequence
    std::uint64_t settled = 0;  // bit i: sequence newest - i
    template <class A>
    void serialize(A& a) {
      a(learner, incarnation, newest, settled);
    }
    bool operator==(const Entry&) const = default;
  };

  // Rebuilds a ledger from a snapshot. Errors: kDataLoss: not sorted, or more than kLearnersMax.
  static Result<PushDedup> FromEntries(std::vector<Entry> entries);
  std::span<const Entry> entries() const { return entries_; }

  // Classifies a push without changing anything.
  Seen Lookup(const PushId& id) const;
  // True if this learner is recorded already, or one more fits.
  bool HasRoomFor(std::int32_t learner) const;
  // Records a push as settled. A newer incarnation discards the entry of the older one. REQUIRES:
  // Lookup(id) == kNew, HasRoomFor.
  void Settle(const PushId& id);
  // Adds everything that `other` has settled. Errors: kResourceExhausted: more than kLearnersMax.
  Status Merge(const PushDedup& other);
  bool operator==(const PushDedup&) const = default;

 private:
  const Entry* Find(std::int32_t learner) const;
  std::vector<Entry> entries_;  // sorted by learner
};

}  // namespace troop
