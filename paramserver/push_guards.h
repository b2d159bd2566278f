#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace troop {

// Gorila's guards (Nair et al. 2015, sec. 4.3): a parameter server drops gradients that are too
// old; and those whose |loss| is beyond the running mean plus several standard deviations.
struct GuardOptions {
  // Versions between what a gradient was computed at and now; -1: any age.
  std::int64_t staleness_max = -1;
  // m of mean + m standard deviations; 0: no such guard. The paper says "several".
  double loss_deviations = 0;
  // Pushes of a learner that the running mean looks back on, and those before it judges at all.
  std::int64_t loss_window = 1000, loss_first = 30;
};
// Errors: kInvalidArgument: which option, which limit.
Status CheckGuardOptions(const GuardOptions& options);

// Running mean and deviation of each learner's |loss|. By learner, because a learner's pushes come
// in one order to every shard: so all shards drop the same ones without a word between them.
// Owner: the shard's loop. O(log learners) a call.
class LossGuard {
 public:
  struct Entry {
    std::int32_t learner = 0;
    std::int64_t count = 0;  // at most loss_window
    double mean = 0, variance = 0;
    template <class A>
    void serialize(A& a) {
      a(learner, count, mean, variance);
    }
    bool operator==(const Entry&) const = default;
  };

  explicit LossGuard(const GuardOptions& options) : options_(options) {}
  // Whether this loss is an outlier; a number that is not finite always is. It counts in the mean,
  // an outlier as the limit that it broke: where losses grow for good, the limit follows.
  bool Judge(std::int32_t learner, float loss);

  std::span<const Entry> entries() const { return entries_; }
  // Errors: kDataLoss: not sorted, or numbers that no losses give.
  Status Restore(std::vector<Entry> entries);

 private:
  GuardOptions options_;
  std::vector<Entry> entries_;  // sorted by learner
};

}  // namespace troop
