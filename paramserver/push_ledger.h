#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace troop {

// Names one push of one life of one learner, for ever.
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

// Which pushes were settled (applied, or dropped for good), in bounded memory: of each learner the
// newest incarnation, its newest sequence, and which of the kWindow below it. It is part of
// snapshots and of what a backup follows, so that a push counts once whoever repeats it, and to
// whom. Owner: the shard's loop. O(log learners) a call.
class PushLedger {
 public:
  // A learner has fewer pushes open than this: what is older counts as settled.
  static constexpr std::uint64_t kWindow = 64;
  static constexpr std::size_t kLearnersMax = 4096;

  enum class Seen {
    kNew,
    kSettled,
    kFenced,  // of a life that a newer one has replaced
  };
  struct Entry {
    std::int32_t learner = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t newest = 0;   // sequence
    std::uint64_t settled = 0;  // bit i: newest - i
    template <class A>
    void serialize(A& a) {
      a(learner, incarnation, newest, settled);
    }
    bool operator==(const Entry&) const = default;
  };

  // Errors: kDataLoss: not sorted, or more than kLearnersMax.
  static Result<PushLedger> FromEntries(std::vector<Entry> entries);
  std::span<const Entry> entries() const { return entries_; }

  Seen Look(const PushId& id) const;
  // Whether one more learner could be remembered, or this one is.
  bool HasRoomFor(std::int32_t learner) const;
  // A newer incarnation forgets the older one's. REQUIRES: kNew, HasRoomFor.
  void Settle(const PushId& id);
  // What either had settled. Errors: kResourceExhausted: more than kLearnersMax.
  Status Merge(const PushLedger& other);
  bool operator==(const PushLedger&) const = default;

 private:
  const Entry* Find(std::int32_t learner) const;
  std::vector<Entry> entries_;  // sorted by learner
};

}  // namespace troop
