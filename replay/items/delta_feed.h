#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "replay/codec/table_delta.h"
#include "replay/items/item_slots.h"
#include "replay/storage/frame_log.h"

namespace troop {

// Makes table deltas, the incremental updates for a replica that is sampled instead of the table
// (GPU replay). Keeps the items in insertion order, and for each frame which delta contained it: 16
// bytes per item and per frame. Owner: one thread (a table). `log` and `slots` outlive it.
//
// REQUIRES: items are evicted by age alone, so a replica learns of evictions by OldestNumber.
class DeltaFeed {
 public:
  using FrameId = FrameLog::FrameId;
  using Slot = ItemSlots::Slot;
  // `enabled`: without it nothing is noted, and Read must not be called.
  DeltaFeed(bool enabled, const FrameLog* log, const ItemSlots* slots)
      : enabled_(enabled), log_(log), slots_(slots) {}
  static std::size_t Bytes(std::int64_t slots, std::int64_t frames);  // memory if enabled

  bool enabled() const { return enabled_; }
  // Notes frames that were just written: no replica has their content. REQUIRES: enabled().
  void NoteNewFrames(std::span<const FrameId> ids);
  // Notes an item that was added, in order of the items' numbers. REQUIRES: enabled(), and
  // NoteNewFrames for its frames.
  void NoteItem(Slot slot);

  // Reads a table delta (Table::ReadDelta). O(items + their frames), after a binary search.
  DeltaCursor Read(DeltaCursor at, std::int64_t items_max, std::size_t bytes_max, TableDelta* out);
  std::uint64_t OldestNumber();  // of the oldest item; of the next one if empty
  std::size_t bytes() const {
    return arrivals_.size() * sizeof(Arrival) + fed_.size() * sizeof(FrameDeltaState);
  }

 private:
  // Per frame: the first item that refers to it, and the last table delta that contained it.
  struct FrameDeltaState {
    std::uint64_t first_item = ~std::uint64_t{0};
    std::uint64_t in_feed = 0;
  };
  // An item in insertion order.
  struct Arrival {
    std::uint64_t number = 0, key = 0;
  };
  std::size_t AppendItem(const Arrival& arrival, const DeltaCursor& at, TableDelta* out);
  std::size_t AppendFrame(FrameId id, TableDelta* out) const;

  bool enabled_;
  const FrameLog* log_;
  const ItemSlots* slots_;
  std::deque<Arrival> arrivals_;      // in insertion order
  std::vector<FrameDeltaState> fed_;  // [frames] by id
  std::uint64_t feeds_ = 0;           // table deltas read so far
};

}  // namespace troop
