#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/items/item_slots.h"
#include "replay/items/selector_pair.h"
#include "replay/table/table_counts.h"

namespace troop {

// A priority as the selectors store it: |TD error| + epsilon, finite. REQUIRES: td_error finite and
// >= 0.
float EffectivePriority(float td_error, double epsilon);

// Applies the priorities that a learner sends to the items of a table. Owner: one thread (a table).
// `slots` and `selectors` outlive it.
class PriorityUpdater {
 public:
  PriorityUpdater(double epsilon, ItemSlots* slots, SelectorPair* selectors)
      : epsilon_(epsilon), slots_(slots), selectors_(selectors) {}

  // Table::Update. The selectors are updated in one batch. REQUIRES: equal sizes.
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> td_error);

 private:
  double epsilon_;
  ItemSlots* slots_;
  SelectorPair* selectors_;
  // Scratch.
  std::vector<ItemSlots::Slot> changed_;
  std::vector<float> priority_;  // [changed_]
};

}  // namespace troop
