#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace troop {

// Gorila's guards (Nair et al. 2015, sec. 4.3): a parameter server drops gradients that are too
// old; and those whose |loss| is beyond the running mean plus several standard deviations. Beyond
// the paper, the same of the gradient's norm: an error behind the loss does not show there.
struct GuardOptions {
  // Versions between what a gradient was computed at and now; -1: any age.
  std::int64_t staleness_max = -1;
  // m of mean + m standard deviations; 0: no such guard. The paper says "several".
  double loss_deviations = 0, norm_deviations = 0;
  // Pushes of a learner that the running means look back on, and those before they judge at all.
  std::int64_t window = 1000, first = 30;
};
// Errors: kInvalidArgument: which option, which limit.
Status CheckGuardOptions(const GuardOptions& options);

// Running mean and deviation of the size of a number that each learner's pushes have: their loss,
// or their norm. By learner, because a learner's pushes come in one order to every shard: so all
// shards drop the same ones without a word between them. Owner: the shard's loop. O(log learners) a
// call.
class OutlierGuard {
 public:
  struct Entry {
    std::int32_t learner = 0;
    std::int64_t count = 0;  // at most the window
    double mean = 0, variance = 0;
    template <class A>
    void serialize(A& a) {
      a(learner, count, mean, variance);
    }
    bool operator==(const Entry&) const = default;
  };

  // `deviations`: 0: nothing is an outlier. `window`, `first`: as of GuardOptions.
  OutlierGuard(double deviations, std::int64_t window, std::int64_t first)
      : deviations_(deviations), window_(window), first_(first) {}
  // Whether this one is an outlier; a number that is not finite always is. It counts in the mean,
  // an outlier as the limit that it broke: where they grow for good, the limit follows.
  bool Judge(std::int32_t learner, float number);

  std::span<const Entry> entries() const { return entries_; }
  // Errors: kDataLoss: not sorted, or what no numbers give.
  Status Restore(std::vector<Entry> entries);

 private:
  const double deviations_;
  const std::int64_t window_, first_;
  std::vector<Entry> entries_;  // sorted by learner
};

}  // namespace troop
