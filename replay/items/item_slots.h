#pragma once

#include <cstdint>

#include "core/base/check.h"
#include "core/base/status.h"
#include "replay/items/dirty_lines.h"
#include "replay/selectors/selector.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/huge_array.h"
#include "replay/storage/snapshot.h"

namespace troop {

inline constexpr std::int64_t kItemsMax = std::int64_t{1} << 29;  // below kSelectorSlotsMax

// The part of an item that sampling and updates read; half a cache line.
struct StoredItem {
  FrameLog::FrameId first = 0;   // earliest frame, lead included
  std::uint32_t generation = 0;  // generation of the current or last item; 0: never used
  std::uint64_t policy_version = 0;
  std::uint64_t number = 0;  // in the order of insertion
  std::uint16_t length = 0;  // 0: the slot is empty
  std::uint16_t lead = 0;
  float priority = 0;  // as the selectors store it (ε added)
  std::uint32_t frames() const { return std::uint32_t{lead} + length + 1; }
  bool live() const { return length != 0; }
};
static_assert(sizeof(StoredItem) == 32);

// The part of an item that is read rarely.
struct ColdItem {
  std::uint32_t times_sampled = 0;  // counted only with max_times_sampled
  SegmentStore::Index segment =
      SegmentStore::kNone;      // segment of the item's record; kNone: no record
  std::uint32_t state = 0;      // offset of the recurrent state in the segment
  std::uint32_t recovered = 0;  // 1: the generation predates this process
};
static_assert(sizeof(ColdItem) == 16);

// The items of a table by slot. Assigns slots, generations and numbers, and marks the lines of the
// slots that change for snapshots. Owner: one thread (a table). Every operation on one slot is O(1)
// and allocates nothing.
//
// A key is generation << 32 | slot. Slots are reused in the order in which they were freed, each
// time with a new generation, so a key identifies one item forever.
class ItemSlots {
 public:
  using Slot = Selector::Slot;
  struct Options {
    std::int64_t slots = 0;
    std::uint32_t first_generation = 1;  // of a slot's first item
    bool tracks_lines = false;           // mark dirty lines
  };
  static Result<ItemSlots> Make(const Options& options);  // kResourceExhausted
  static std::size_t Bytes(std::int64_t slots);           // memory when all slots are used

  // Stores an item in an empty slot, with its generation and number. REQUIRES: size() < capacity().
  Slot Add(const StoredItem& item);
  // Notes the place of the item's record. Not part of a snapshot.
  void SetRecord(Slot slot, SegmentStore::Index segment, std::uint32_t state) {
    cold_[slot].segment = segment;
    cold_[slot].state = state;
  }
  void SetPriority(Slot slot, float priority) {
    item_[slot].priority = priority;
    dirty_.Mark(slot);
  }
  // Counts a sample of the item; returns their number.
  std::uint32_t CountSample(Slot slot) {
    dirty_.Mark(slot);
    return ++cold_[slot].times_sampled;
  }
  // Empties a slot. REQUIRES: the slot has an item, whose frames and record the caller released.
  void Free(Slot slot);

  // ---- Recovery from a log on disk ----

  // Places an item as it was, its generation and number included. REQUIRES: no Add or Free before.
  void Restore(Slot slot, const StoredItem& item, const ColdItem& cold);
  // Ends recovery. Orders the empty slots cyclically from `next` on: the order of a table that
  // evicts in insertion order. `inserted`: items that were ever inserted.
  void FinishRestore(Slot next, std::uint64_t inserted);
  void SetFirstGeneration(std::uint32_t generation) { options_.first_generation = generation; }

  // ---- Reading ----

  const StoredItem& item(Slot slot) const { return item_[slot]; }
  const StoredItem* items() const { return item_.data(); }  // [capacity()]
  const ColdItem& cold(Slot slot) const { return cold_[slot]; }
  std::uint64_t key(Slot slot) const { return std::uint64_t{item_[slot].generation} << 32 | slot; }
  // True if the key's item is in the table. Any key is allowed.
  bool Alive(std::uint64_t key) const {
    const auto slot = Slot(key);
    return std::int64_t(slot) < options_.slots && item_[slot].generation == key >> 32 &&
           item_[slot].live();
  }
  // Loads a key's item into the cache, for writing.
  void Prefetch(std::uint64_t key) const {
    if (std::int64_t(Slot(key)) < options_.slots) __builtin_prefetch(&item_[Slot(key)], 1);
  }
  // Line of a snapshot; evicted slots are empty, which a restart takes as gone.
  void ReadLine(std::int64_t line, SlotLine* out) const;
  std::int64_t lines() const { return (options_.slots + kSlotsPerLine - 1) / kSlotsPerLine; }
  DirtyLines& dirty_lines() { return dirty_; }
  const DirtyLines& dirty_lines() const { return dirty_; }

  std::int64_t capacity() const { return options_.slots; }
  std::int64_t size() const { return size_; }
  std::uint64_t inserted() const { return inserted_; }  // number of the next item
  std::int64_t evicted() const { return std::int64_t(inserted_) - size_; }
  std::size_t bytes() const { return item_.bytes() + cold_.bytes() + freed_.bytes(); }

 private:
  ItemSlots(const Options& options, HugeArray<StoredItem> item, HugeArray<ColdItem> cold,
            HugeArray<Slot> freed);
  Slot TakeSlot();

  Options options_;
  HugeArray<StoredItem> item_;  // [slots]
  HugeArray<ColdItem> cold_;    // [slots]
  HugeArray<Slot> freed_;       // ring of empty slots in the order in which they were freed
  std::uint64_t freed_head_ = 0, freed_count_ = 0;
  std::uint32_t fresh_ = 0;  // slots ever used; all of them after recovery
  std::int64_t size_ = 0;
  std::uint64_t inserted_ = 0;
  DirtyLines dirty_;
};

// Inline, as they run for each item: a copy of an item through memory stalls.
inline ItemSlots::Slot ItemSlots::TakeSlot() {
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

inline ItemSlots::Slot ItemSlots::Add(const StoredItem& item) {
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

inline void ItemSlots::Free(Slot slot) {
  item_[slot].length = 0;
  cold_[slot].segment = SegmentStore::kNone;
  freed_[(freed_head_ + freed_count_++) % std::uint64_t(options_.slots)] = slot;
  dirty_.Mark(slot);
  --size_;
}

}  // namespace troop
