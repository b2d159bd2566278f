#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Gradient filters of Gorila (Nair et al. 2015, sec. 4.3): a parameter server drops gradients that
// are too old, and those whose |loss| exceeds the running mean by several standard deviations. An
// extension of the paper applies the second test to the gradient's norm, because an error after the
// loss computation does not show in the loss.
struct GradientFilterOptions {
  // Largest staleness that is accepted, in versions; -1: no limit.
  std::int64_t staleness_max = -1;
  // Limit in standard deviations above the running mean, for |loss| and the norm; 0 disables the
  // test. The paper says "several".
  double loss_deviations = 0, norm_deviations = 0;
  // `window`: pushes of a learner that the running statistics cover. `first`: pushes of a learner
  // that are accepted before the test begins.
  std::int64_t window = 1000, first = 30;
};
// Errors: kInvalidArgument, naming the option and its limit.
Status CheckGradientFilterOptions(const GradientFilterOptions& options);

// Running mean and variance of the magnitude of one scalar per push (its loss, or its norm), kept
// per learner. A learner's pushes reach every shard in the same order, so all shards drop the same
// pushes without communication. Owner: the shard's loop. O(log learners) per call.
class OutlierFilter {
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

  // `deviations`: 0 accepts everything. `window`, `first`: as in GradientFilterOptions.
  OutlierFilter(double deviations, std::int64_t window, std::int64_t first)
      : deviations_(deviations), window_(window), first_(first) {}
  // Returns true if the value is an outlier; a non-finite value always is. An outlier enters the
  // statistics clamped to the limit that it exceeded, so the limit follows a permanent rise.
  bool Judge(std::int32_t learner, float number);

  std::span<const Entry> entries() const { return entries_; }
  // Errors: kDataLoss: not sorted, or impossible statistics.
  Status Restore(std::vector<Entry> entries);

 private:
  const double deviations_;
  const std::int64_t window_, first_;
  std::vector<Entry> entries_;  // sorted by learner
};

}  // namespace troop
