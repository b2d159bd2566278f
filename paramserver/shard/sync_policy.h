#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "paramserver/paramserver_modes.h"

namespace troop {

struct SyncOptions {
  SyncMode mode = SyncMode::kBsp;
  // No update happens before this many learners have joined, or joined and left again; kAsync does
  // not wait.
  int learners = 1;
  // kKOfN: the four variants of Dutta et al. 2018. per_batch: a fast learner may contribute several
  // of the k. cancel: drop gradients of an older version. Neither: K-async; per_batch alone:
  // K-batch-async, which is n-softsync of Zhang et al. 2016 with k = learners / n; cancel alone:
  // K-sync; both: K-batch-sync.
  int k = 1;
  bool cancel = false;
  bool per_batch = false;
  // kSsp: the staleness bound s. 0 equals kBsp, bit for bit.
  std::uint64_t staleness = 0;
  // Weight a gradient of staleness τ >= 1 by 1/τ (Zhang et al. 2016). kKOfN, kSsp, kAsync.
  bool staleness_discount = false;
  // kAsync: until this version only the first learner gets parameters (warm start of Downpour).
  std::uint64_t warm_start_updates = 0;
};
// Errors: kInvalidArgument, naming the option and its limit.
Status CheckSyncOptions(const SyncOptions& options);
// True for synchronous modes: no learner continues before all have pushed, so all shards of a model
// go through the same versions.
bool IsSynchronous(const SyncOptions& options);

// Decides when a push is applied and with which weight, and when a pull may return. Tracks the
// members; a learner whose lease expired is not waited for. Holds no payload: `id` names what the
// caller holds. No clock, no lock; owner: the shard's loop. Deterministic: equal calls give equal
// decisions, and an update's terms are in the order of (learner, id), not of arrival.
// Cost: O(learners) per call. Memory: the learners, and at most max(k, learners) held pushes.
class SyncPolicy {
 public:
  struct Arrival {
    std::int32_t learner = 0;
    std::uint64_t id = 0;     // grows with each push of a learner
    std::uint64_t clock = 0;  // version that the gradient was computed at
    // Dropped by a guard: it counts as this learner's contribution but changes nothing.
    bool dropped = false;
  };
  enum class Verdict {
    kAccepted,  // part of a coming update, or of NextUpdate already
    kLate,      // computed at a version that no longer counts: drop it
  };
  struct Term {
    std::int32_t learner = 0;
    std::uint64_t id = 0;
    std::uint64_t staleness = 0;  // versions between its clock and this update
    float weight = 1;             // 1/τ if damped
  };
  // One update. kLocalSgd: value = scale · Σ weight · pushed value. Otherwise the optimizer steps
  // with the gradient scale · Σ weight · pushed gradient, summed in this order. Without terms (all
  // were dropped) only the version changes.
  struct Update {
    std::vector<Term> terms;
    float scale = 1;
    bool average_values = false;
  };
  // Member state in snapshots and on the backup. Held pushes are not included: they were not
  // acknowledged.
  struct Member {
    std::int32_t learner = 0;
    bool live = false;
    std::uint64_t clock = 0;  // counted pushes; starts at the slowest member's clock
    template <class A>
    void serialize(A& a) {
      a(learner, live, clock);
    }
    bool operator==(const Member&) const = default;
  };

  // REQUIRES: CheckSyncOptions is ok.
  explicit SyncPolicy(const SyncOptions& options);

  // Adds a learner, whose clock starts at the slowest member's. No effect if it is a member
  // already.
  void Join(std::int32_t learner);
  // Stops waiting for a learner; its held pushes stay. May make an update ready.
  void Leave(std::int32_t learner);
  // Accepts a push. Errors: kFailedPrecondition: not a member, it must pull first, or its clock is
  // ahead of version() (possible after a takeover): it must pull again.
  Result<Verdict> Arrive(const Arrival& arrival);
  // The error that Arrive would return; changes nothing.
  Status Check(const Arrival& arrival) const;
  // Returns the update that is due and increments version(). Call until it returns nullopt.
  std::optional<Update> NextUpdate();
  // True if this learner may continue with the current version, once NextUpdate has returned
  // nullopt. True for non-members.
  bool MayPull(std::int32_t learner) const;

  const SyncOptions& options() const { return options_; }
  std::uint64_t version() const { return version_; }
  // Clock of the slowest live member; 0 before all have joined.
  std::uint64_t min_clock() const;
  bool at_once() const;  // each push is a separate update
  // True if a gradient of an older version will be kLate; a learner may then stop computing it.
  bool cancels() const;
  // Sorted by learner; includes members that left.
  std::span<const Member> members() const { return members_; }
  std::size_t held() const { return held_.size(); }
  // True if sorted by learner, without duplicates.
  static bool AreSorted(std::span<const Member> members);
  // After an update: a shard restored from an old snapshot adopts the version of the others. No
  // effect if `version` is not ahead.
  void SkipTo(std::uint64_t version) { version_ = std::max(version_, version); }
  // Replaces the state and drops held pushes. REQUIRES: AreSorted.
  void Restore(std::uint64_t version, std::span<const Member> members);

 private:
  const Member* Find(std::int32_t learner) const;
  Member* Find(std::int32_t learner);
  bool Holds(std::int32_t learner) const;
  bool Due() const;
  std::size_t live() const;
  bool started() const { return members_.size() >= std::size_t(options_.learners); }

  SyncOptions options_;
  std::uint64_t version_ = 0;
  std::vector<Member> members_;
  std::vector<Arrival> held_;
};

}  // namespace troop
