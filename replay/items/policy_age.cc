// PolicyAge: the newest policy version, and the search for items that are too old for it.
#include "replay/items/policy_age.h"

#include <algorithm>

#include "core/tensor/trajectory.h"

namespace troop {

void PolicyAge::Observe(std::uint64_t version) {
  // The first call discards what items reported, which an actor could have made up.
  newest_ = observed_ ? std::max(newest_, version) : version;
  observed_ = true;
}

void PolicyAge::NoteItem(Slot slot) {
  Raise(slots_->item(slot).policy_version);
  if (limited()) order_.push_back(slots_->key(slot));
}

bool PolicyAge::IsStale(Slot slot) const {
  // Ages are in updates: incarnations of the learner, in the upper bits, do not count.
  const std::uint64_t newest = UpdatesOf(newest_);
  const std::uint64_t own = UpdatesOf(slots_->item(slot).policy_version);
  return own < newest && newest - own > max_age_;
}

// An item that is not stale ends the search: later ones are mostly of newer versions. A stale item
// after it is found when it is sampled.
void PolicyAge::TakeStale(std::vector<Slot>* stale) {
  stale->clear();
  while (!order_.empty()) {
    const std::uint64_t key = order_.front();
    if (slots_->Alive(key)) {
      if (!IsStale(Slot(key))) break;
      stale->push_back(Slot(key));
    }
    order_.pop_front();
  }
}

// Removes evicted items from the order when they dominate it: an old item that stays at the front
// would let it grow without bound.
void PolicyAge::TrimOrder() {
  if (std::int64_t(order_.size()) <= 2 * slots_->capacity() + 1024) return;
  std::erase_if(order_, [this](std::uint64_t key) { return !slots_->Alive(key); });
}

}  // namespace troop
