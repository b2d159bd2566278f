#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "replay/items/item_slots.h"

namespace troop {

// The newest policy version of a table, and which items are too old for it. Owner: one thread (a
// table). `slots` outlives it.
//
// An item's age is the number of updates from its policy version to the newest one. With a limit,
// the items are also kept in insertion order, to find the old ones: 8 bytes per item.
class PolicyAge {
 public:
  using Slot = ItemSlots::Slot;
  // max_age: limit in updates; 0: none.
  PolicyAge(std::uint64_t max_age, const ItemSlots* slots) : max_age_(max_age), slots_(slots) {}

  // Sets the newest version from an authoritative source. The first call discards the maximum that
  // items had reached; from then on their versions have no effect.
  void Observe(std::uint64_t version);
  // Notes an item that was added to its slot. Called in insertion order.
  void NoteItem(Slot slot);
  // Raises the newest version, as items do, from a log on disk.
  void Raise(std::uint64_t version) {
    if (!observed_ && version > newest_) newest_ = version;
  }

  bool limited() const { return max_age_ > 0; }
  // True if the item exceeds the limit. Versions above the newest one count as age 0. REQUIRES:
  // limited().
  bool IsStale(Slot slot) const;
  // Takes the stale items at the front of the insertion order; amortized O(1) per item. They are
  // distinct and live.
  void TakeStale(std::vector<Slot>* stale);
  // Bounds the memory of the insertion order. Called after inserts.
  void TrimOrder();

  std::uint64_t newest() const { return newest_; }
  std::size_t bytes() const { return order_.size() * sizeof(std::uint64_t); }

 private:
  std::uint64_t max_age_;
  const ItemSlots* slots_;
  std::uint64_t newest_ = 0;
  bool observed_ = false;            // newest_ was set by Observe
  std::deque<std::uint64_t> order_;  // keys in insertion order; only with a limit
};

}  // namespace troop
