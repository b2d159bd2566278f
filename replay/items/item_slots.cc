// ItemSlots: slots, generations and numbers of items, recovery, and lines for snapshots.
#include "replay/items/item_slots.h"

#include <utility>

namespace troop {

// All memory is reserved here; pages are touched when slots are first used.
Result<ItemSlots> ItemSlots::Make(const Options& options) {
  const auto n = std::size_t(options.slots);
  TROOP_ASSIGN_OR_RETURN(HugeArray<StoredItem> item, HugeArray<StoredItem>::Make(n));
  TROOP_ASSIGN_OR_RETURN(HugeArray<ColdItem> cold, HugeArray<ColdItem>::Make(n));
  TROOP_ASSIGN_OR_RETURN(HugeArray<Slot> freed, HugeArray<Slot>::Make(n));
  return ItemSlots(options, std::move(item), std::move(cold), std::move(freed));
}

std::size_t ItemSlots::Bytes(std::int64_t slots) {
  const auto n = std::size_t(slots);
  return HugeArray<StoredItem>::Bytes(n) + HugeArray<ColdItem>::Bytes(n) +
         HugeArray<Slot>::Bytes(n);
}

ItemSlots::ItemSlots(const Options& options, HugeArray<StoredItem> item, HugeArray<ColdItem> cold,
                     HugeArray<Slot> freed)
    : options_(options),
      item_(std::move(item)),
      cold_(std::move(cold)),
      freed_(std::move(freed)),
      dirty_(options.tracks_lines ? options.slots : 0) {}

// Slots arrive in any order during recovery; FinishRestore lists the empty ones.
void ItemSlots::Restore(Slot slot, const StoredItem& item, const ColdItem& cold) {
  item_[slot] = item;
  cold_[slot] = cold;
  dirty_.Mark(slot);
  ++size_;
}

// All slots count as used from here on, so that TakeSlot takes the empty ones in this order.
void ItemSlots::FinishRestore(Slot next, std::uint64_t inserted) {
  inserted_ = inserted;
  fresh_ = std::uint32_t(options_.slots);
  for (std::int64_t i = 0; i < options_.slots; ++i) {
    const auto slot = Slot((std::int64_t(next) + i) % options_.slots);
    if (!item_[slot].live()) freed_[freed_count_++] = slot;
  }
}

// Slots beyond the last one, and empty ones, stay zero.
void ItemSlots::ReadLine(std::int64_t line, SlotLine* out) const {
  *out = {};
  for (std::int64_t i = 0; i < kSlotsPerLine; ++i) {
    const std::int64_t s = line * kSlotsPerLine + i;
    if (s >= options_.slots) return;
    const StoredItem& stored = item_[std::size_t(s)];
    if (!stored.live()) continue;  // an all-zero entry: generation 0
    (*out)[std::size_t(i)] = {.generation = stored.generation,
                              .priority = stored.priority,
                              .times_sampled = cold_[std::size_t(s)].times_sampled};
  }
}

}  // namespace troop
