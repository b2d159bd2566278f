#include "paramserver/push_guards.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troop {

Status CheckGuardOptions(const GuardOptions& options) {
  if (options.staleness_max < -1) {
    return InvalidArgument("guard: staleness up to {}; -1 or more", options.staleness_max);
  }
  if (!(options.loss_deviations >= 0 && std::isfinite(options.loss_deviations))) {
    return InvalidArgument("guard: {} standard deviations of the loss; a finite number from 0 on",
                           options.loss_deviations);
  }
  if (options.loss_window < 2 || options.loss_first < 2) {
    return InvalidArgument("guard: a window of {} losses, judged from {} on; 2 at least",
                           options.loss_window, options.loss_first);
  }
  return Status::Ok();
}

bool LossGuard::Judge(std::int32_t learner, float loss) {
  if (options_.loss_deviations == 0) return false;
  if (!std::isfinite(loss)) return true;
  auto it = std::ranges::lower_bound(entries_, learner, {}, &Entry::learner);
  if (it == entries_.end() || it->learner != learner) {
    it = entries_.insert(it, {.learner = learner});
  }
  double size = std::abs(double(loss));
  const double limit = it->mean + options_.loss_deviations * std::sqrt(it->variance);
  const bool outlier = it->count >= options_.loss_first && size > limit;
  if (outlier) size = limit;
  // A plain mean of the first ones, then an exponential one (West 1979).
  it->count = std::min(it->count + 1, options_.loss_window);
  const double share = 1 / double(it->count), off = size - it->mean;
  it->mean += share * off;
  it->variance = (1 - share) * (it->variance + share * off * off);
  return outlier;
}

Status LossGuard::Restore(std::vector<Entry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i > 0 && entry.learner <= entries[i - 1].learner) {
      return DataLoss("losses of learner {} after {}", entry.learner, entries[i - 1].learner);
    }
    if (entry.count < 0 || !(entry.mean >= 0 && std::isfinite(entry.mean)) ||
        !(entry.variance >= 0 && std::isfinite(entry.variance))) {
      return DataLoss("losses of learner {}: {} of mean {} and variance {}", entry.learner,
                      entry.count, entry.mean, entry.variance);
    }
  }
  entries_ = std::move(entries);
  return Status::Ok();
}

}  // namespace troop
