#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

enum class SyncMode : std::uint8_t {
  kBsp = 0,    // all learners, then one update: synchronous SGD
  kKOfN = 1,   // the first k pushes make an update
  kSsp = 2,    // nobody is more than `staleness` pushes ahead of the slowest (Ho et al. 2013)
  kAsync = 3,  // each push is an update (Downpour: Dean et al. 2012)
  kLocalSgd =
      4,  // all learners' values, averaged, every H local steps (PSGD: Zinkevich et al. 2010)
};
Result<SyncMode> ParseSyncMode(std::string_view text);  // "bsp", "k_of_n", "ssp", "async", …
std::string_view SyncModeName(SyncMode mode);

struct SyncOptions {
  SyncMode mode = SyncMode::kBsp;
  // Nothing is updated (kAsync: but there) before so many have joined, or have left again.
  int learners = 1;
  // kKOfN. The four of Dutta et al. 2018: per_batch lets a fast learner give several of the k;
  // cancel drops what was computed at an older version. Neither: K-async; per_batch alone:
  // K-batch-async, which is n-softsync of Zhang et al. 2016 with k = learners / n; cancel alone:
  // K-sync; both: K-batch-sync.
  int k = 1;
  bool cancel = false;
  bool per_batch = false;
  // kSsp: s. 0 is kBsp, bit for bit.
  std::uint64_t staleness = 0;
  // A gradient τ >= 1 versions old counts 1/τ (Zhang et al. 2016). kKOfN, kSsp, kAsync.
  bool damp_stale = false;
  // kAsync: until this version only the first learner gets parameters (Downpour's warm start).
  std::uint64_t warm_start_updates = 0;
};
// Errors: kInvalidArgument: which option, which limit.
Status CheckSyncOptions(const SyncOptions& options);
// Nobody goes on before all have pushed: shards that share a model go through the same versions.
bool InStep(const SyncOptions& options);

// Decides when a push is applied and with which weight, and when a pull may return. Knows who takes
// part: one who left (its lease ended) is waited for by nobody. Holds no payload: `id` names what
// the caller holds. No clock, no lock; owner: the shard's loop. Equal calls, equal decisions; an
// update's terms are in the order of (learner, id), whoever came first.
// Cost: O(learners) a call. Memory: learners, and at most max(k, learners) pushes held.
class SyncPolicy {
 public:
  struct Arrival {
    std::int32_t learner = 0;
    std::uint64_t id = 0;     // grows with each push of a learner
    std::uint64_t clock = 0;  // the version that it was computed at
    // A guard dropped it: it counts where others wait for this learner, and changes nothing.
    bool dropped = false;
  };
  enum class Verdict {
    kTaken,  // a coming update has it, or NextUpdate now
    kLate,   // computed at a version that no longer counts: drop it
  };
  struct Term {
    std::int32_t learner = 0;
    std::uint64_t id = 0;
    std::uint64_t staleness = 0;  // versions between its clock and this update
    float weight = 1;             // 1/τ, where damped
  };
  // kLocalSgd: value = scale · Σ weight · pushed value. Else: the optimizer steps with the gradient
  // scale · Σ weight · pushed gradient, summed in this order. No terms (all were dropped): nothing
  // but the version changes.
  struct Update {
    std::vector<Term> terms;
    float scale = 1;
    bool average_values = false;
  };
  // What a snapshot and a backup keep. Held pushes are not in it: they were not acknowledged.
  struct Member {
    std::int32_t learner = 0;
    bool live = false;
    std::uint64_t clock = 0;  // pushes that count, since it joined where the slowest was
    template <class A>
    void serialize(A& a) {
      a(learner, live, clock);
    }
    bool operator==(const Member&) const = default;
  };

  // REQUIRES: CheckSyncOptions is ok.
  explicit SyncPolicy(const SyncOptions& options);

  // Again is no change. One who joins begins where the slowest is.
  void Join(std::int32_t learner);
  // It is not waited for any more; what it had pushed stays. May make an update ready.
  void Leave(std::int32_t learner);
  // Errors: kFailedPrecondition: not a member, it owes a pull first, or its clock is ahead of
  // version() (as after a takeover): it must pull again.
  Result<Verdict> Arrive(const Arrival& arrival);
  // What Arrive would refuse; it changes nothing.
  Status Check(const Arrival& arrival) const;
  // The update that is due now; version() is one more after it. Ask until there is none.
  std::optional<Update> NextUpdate();
  // Whether what this learner would get now is new enough to go on with, after NextUpdate had
  // nothing more. True for strangers: they take no part.
  bool MayPull(std::int32_t learner) const;

  const SyncOptions& options() const { return options_; }
  std::uint64_t version() const { return version_; }
  // Of the slowest who takes part; 0 before all have joined.
  std::uint64_t min_clock() const;
  bool at_once() const;  // each push is an update
  // A gradient of an older version will be kLate: a learner may stop computing it.
  bool cancels() const;
  std::span<const Member> members() const { return members_; }  // sorted, also who left
  std::size_t held() const { return held_.size(); }
  // By learner, each once.
  static bool AreSorted(std::span<const Member> members);
  // After an update: a shard that went back takes up the version of those that did not. No change
  // where it is not ahead.
  void SkipTo(std::uint64_t version) { version_ = std::max(version_, version); }
  // Drops what is held. REQUIRES: AreSorted.
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
