// ItemSlots: slots, generations and numbers of items, recovery, and lines for snapshots.
#include "replay/items/item_slots.h"

#include <utility>

#include "core/base/check.h"

namespace troop {

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

ItemSlots::Slot ItemSlots::TakeSlot() {
  // Unused slots first, then the one that was freed longest ago, so that keys repeat as late as
  // possible.
  Slot taken = 0;
  // `fresh_` counts the slots that were ever used.
  if (std::int64_t(fresh_) < options_.slots) {
    taken = fresh_++;
  } else {
    TROOP_CHECK(freed_count_ > 0, "no room was made for an item");
    taken = freed_[freed_head_++ % std::uint64_t(options_.slots)];
    --freed_count_;
  }
  StoredItem& stored = item_[taken];
  // A recovered slot continues with this process's own generations: keys that the earlier process
  // handed out and lost must not be reused.
  const bool own = stored.generation != 0 && cold_[taken].recovered == 0;
  stored.generation = own ? stored.generation + 1 : options_.first_generation;
  if (stored.generation == 0) stored.generation = 1;  // wrapped around
  return taken;
}

ItemSlots::Slot ItemSlots::Add(const StoredItem& item) {
  const Slot taken = TakeSlot();
  StoredItem& stored = item_[taken];
  const std::uint32_t generation = stored.generation;
  // The slot keeps its generation, which TakeSlot has set.
  stored = item;
  stored.generation = generation;
  stored.number = inserted_++;
  cold_[taken] = {};
  dirty_.Mark(taken);
  ++size_;
  return taken;
}

void ItemSlots::Free(Slot slot) {
  item_[slot].length = 0;
  cold_[slot].segment = SegmentStore::kNone;
  freed_[(freed_head_ + freed_count_++) % std::uint64_t(options_.slots)] = slot;
  dirty_.Mark(slot);
  --size_;
}

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
