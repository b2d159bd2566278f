#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/codec/encoded_batch.h"
#include "replay/items/item_slots.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/item_view.h"

namespace troop {

// Gathers the columns and frame pointers of sampled items into a batch. Changes nothing in the
// table. Owner: one thread (a table). `log` and `slots` outlive it.
//
// Blocks of items are processed in three passes: the item data, the entries of their frames, then
// the columns from the cache. Passes that only read keep many cache misses in flight. Prefetch
// instructions would take twice as long, since the processor drops those that also miss the TLB,
// and so does writing columns in between. Actions outside the entries come last.
class ItemGatherer {
 public:
  using Slot = ItemSlots::Slot;
  ItemGatherer(const ViewSpec& view, const FrameLog* log, const ItemSlots* slots)
      : view_(view), log_(log), slots_(slots) {}

  // Fills all columns of the batch but the probabilities; row i is of chosen[i]. A slot may occur
  // twice. O(items * steps). REQUIRES: live items.
  void Gather(std::span<const Slot> chosen, EncodedBatch* out);
  // [B] For the last batch: the number of items inserted since each sampled one.
  std::span<const std::uint64_t> age() const { return age_; }

 private:
  void Resize(std::size_t count, EncodedBatch* out);
  void TouchItems(std::span<const Slot> block);
  void TouchEntries(std::span<const Slot> block);
  void GatherItem(const StoredItem& stored, std::size_t i, EncodedBatch* out, std::size_t* frames);
  void CopyActions(EncodedBatch* out) const;
  void CopyStates(std::span<const Slot> chosen, EncodedBatch* out) const;
  // Steps of a row that have an action.
  std::size_t actions() const {
    return view_.kind == ViewSpec::Kind::kSequence ? std::size_t(view_.steps()) : 1;
  }

  ViewSpec view_;
  const FrameLog* log_;
  const ItemSlots* slots_;
  std::vector<std::uint64_t> age_;
  std::vector<const std::byte*> action_;  // scratch: actions outside the entries
  std::uint32_t touched_ = 0;  // result of read-ahead loops, so that they are not optimized away
};

}  // namespace troop
