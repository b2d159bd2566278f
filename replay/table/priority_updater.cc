// PriorityUpdater: finds the items of the keys and passes their new priorities to the selectors.
#include "replay/table/priority_updater.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/base/check.h"

namespace troop {

// The sum is computed in f64 and clamped: |TD error| + ε must stay finite.
float EffectivePriority(float td_error, double epsilon) {
  return float(std::min(double(td_error) + epsilon, double(FLT_MAX)));
}

UpdateCounts PriorityUpdater::Update(std::span<const std::uint64_t> key,
                                     std::span<const float> td_error) {
  TROOP_CHECK(key.size() == td_error.size(), "{} keys, {} priorities", key.size(), td_error.size());
  constexpr std::size_t kAhead = 16;  // prefetch distance: covers one memory access
  UpdateCounts counts;
  changed_.clear();
  priority_.clear();
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (i + kAhead < key.size()) slots_->Prefetch(key[i + kAhead]);
    const float p = td_error[i];
    // The negated comparison also refuses NaN.
    if (!(p >= 0 && p <= FLT_MAX)) {
      ++counts.refused;
    } else if (!slots_->Alive(key[i])) {
      ++counts.stale;
    } else {
      ++counts.applied;
      // -0: never sample again, without ε.
      const float priority = std::signbit(p) ? 0 : EffectivePriority(p, epsilon_);
      changed_.push_back(ItemSlots::Slot(key[i]));
      priority_.push_back(priority);
      slots_->SetPriority(changed_.back(), priority);
    }
  }
  if (!changed_.empty()) selectors_->Update(changed_, priority_);
  return counts;
}

}  // namespace troop
