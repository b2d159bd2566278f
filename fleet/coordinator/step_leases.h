#pragma once

#include <cstdint>

namespace troop {

// The agent steps of one incarnation.
struct StepLease {
  std::int64_t granted = 0;  // in total, including those done
  std::int64_t done = 0;     // at most granted
};

// Divides the step budget of a run into leases of its actors.
//
// Invariant: the steps leased to live incarnations plus those done by all never exceed the budget.
// Owner: the coordinator, whose member entries hold the leases. The sums over all leases are
// updated incrementally: O(1) per call.
class StepLeases {
 public:
  // `total`: the budget. `done`: steps of the run before its resume.
  StepLeases(std::int64_t total, std::int64_t done) : total_(total), retired_(done) {}

  // Steps done by all incarnations of the run.
  std::int64_t done() const { return retired_ + members_done_; }
  // True if all steps are leased or done. Return can make it false again.
  bool exhausted() const { return leased() >= total_; }

  // Takes over the steps that an incarnation reports: they never decrease, and never exceed its
  // lease.
  void Report(StepLease* lease, std::int64_t done);
  // Raises the lease to `wanted` steps in total, as far as the budget lasts; never lowers it.
  void Grant(StepLease* lease, std::int64_t wanted);
  // Returns the unused steps of an incarnation that ended to the pool. Later reports of it change
  // nothing.
  void Return(StepLease* lease);
  // Folds an incarnation that was replaced into the totals and clears its lease.
  void Retire(StepLease* lease);

 private:
  std::int64_t leased() const { return done() + members_leased_; }
  void Set(StepLease* lease, StepLease next);

  std::int64_t total_;
  std::int64_t retired_;             // steps done by replaced incarnations
  std::int64_t members_done_ = 0;    // sum of done
  std::int64_t members_leased_ = 0;  // sum of granted - done
};

}  // namespace troop
