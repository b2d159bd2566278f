// Implements the running statistics of the outlier guards.
#include "paramserver/shard/outlier_filter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troop {

// Statistics need at least two values.
Status CheckGradientFilterOptions(const GradientFilterOptions& options) {
  if (options.staleness_max < -1) {
    return InvalidArgument("guard: the staleness limit is {}, must be at least -1",
                           options.staleness_max);
  }
  for (const double deviations : {options.loss_deviations, options.norm_deviations}) {
    if (deviations >= 0 && std::isfinite(deviations)) continue;
    return InvalidArgument(
        "guard: the limit is {} standard deviations, must be finite and at least 0", deviations);
  }
  if (options.window < 2 || options.first < 2) {
    return InvalidArgument(
        "guard: the window is {} pushes and the test begins at {}, both must be at least 2",
        options.window, options.first);
  }
  return Status::Ok();
}

// A push beyond the limit counts as the limit itself, so that one outlier hardly moves it.
bool OutlierFilter::Judge(std::int32_t learner, float number) {
  if (deviations_ == 0) return false;
  if (!std::isfinite(number)) return true;
  auto it = std::ranges::lower_bound(entries_, learner, {}, &Entry::learner);
  if (it == entries_.end() || it->learner != learner) {
    it = entries_.insert(it, {.learner = learner});
  }
  double size = std::abs(double(number));
  const double limit = it->mean + deviations_ * std::sqrt(it->variance);
  const bool outlier = it->count >= first_ && size > limit;
  if (outlier) size = limit;
  // A plain mean until the window is full, then an exponential one (West 1979).
  it->count = std::min(it->count + 1, window_);
  const double share = 1 / double(it->count), off = size - it->mean;
  it->mean += share * off;
  it->variance = (1 - share) * (it->variance + share * off * off);
  return outlier;
}

// Snapshots are untrusted.
Status OutlierFilter::Restore(std::vector<Entry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i > 0 && entry.learner <= entries[i - 1].learner) {
      return DataLoss("a guard has learner {} after {}", entry.learner, entries[i - 1].learner);
    }
    if (entry.count < 0 || !(entry.mean >= 0 && std::isfinite(entry.mean)) ||
        !(entry.variance >= 0 && std::isfinite(entry.variance))) {
      return DataLoss(
          "a guard has invalid statistics of learner {}: count {}, mean {}, variance {}",
          entry.learner, entry.count, entry.mean, entry.variance);
    }
  }
  entries_ = std::move(entries);
  return Status::Ok();
}

}  // namespace troop
