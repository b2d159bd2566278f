// ItemEvictor: eviction of items, and the pins of frames that a draw returned.
#include "replay/items/item_evictor.h"

namespace troop {

// Empties a slot. The caller removes the item from the selectors.
void ItemEvictor::FreeSlot(Slot leaver) {
  const StoredItem& stored = parts_.slots->item(leaver);
  const SegmentStore::Index segment = parts_.slots->cold(leaver).segment;
  // The frames lose one reference each; the item's record loses its live bytes.
  parts_.log->Release(stored.first, stored.frames());
  if (segment != SegmentStore::kNone) parts_.log->store().DropLive(segment, options_.item_bytes);
  parts_.slots->Free(leaver);
}

void ItemEvictor::Evict(std::int64_t count) {
  parts_.selectors->PickLeavers(count, &leaving_);
  for (const Slot leaver : leaving_) FreeSlot(leaver);
}

void ItemEvictor::EvictThese(std::span<const Slot> leavers) {
  if (leavers.empty()) return;
  parts_.selectors->Remove(leavers);
  for (const Slot leaver : leavers) FreeSlot(leaver);
}

void ItemEvictor::EvictSpent(std::span<const Slot> leavers) {
  parts_.selectors->RemoveFromRemover(leavers);
  for (const Slot leaver : leavers) FreeSlot(leaver);
}

// Between trims the table may exceed its capacity by up to 1/8 (TableOptions::slots).
void ItemEvictor::TrimToCapacity() {
  const std::int64_t excess = parts_.slots->size() - options_.capacity_items;
  if (excess > 0) Evict(excess);
}

bool ItemEvictor::CountSamples(std::uint64_t items) {
  samples_since_trim_ += items;
  if (options_.trim_every_samples == 0 ||
      samples_since_trim_ < std::uint64_t(options_.trim_every_samples)) {
    return false;
  }
  samples_since_trim_ = 0;
  return parts_.slots->size() > options_.capacity_items;
}

void ItemEvictor::Pin(std::span<const Slot> items) {
  // A reference for each occurrence, so that Unpin needs no search for duplicates.
  for (const Slot slot : items) {
    const StoredItem& stored = parts_.slots->item(slot);
    pinned_.push_back({stored.first, stored.frames()});
    parts_.log->Refer(stored.first, stored.frames());
  }
}

void ItemEvictor::Unpin() {
  for (const Pinned& range : pinned_) parts_.log->Release(range.first, range.count);
  pinned_.clear();
}

}  // namespace troop
