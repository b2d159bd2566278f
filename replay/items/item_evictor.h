#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/items/item_slots.h"
#include "replay/items/selector_pair.h"
#include "replay/storage/frame_log.h"

namespace troop {

// Evicts items: from both selectors, from their slots, and with them the references to their frames
// and the live bytes of their records. Also trims a soft capacity, and pins the frames of the last
// draw, whose items may leave with it. Owner: one thread (a table). `parts` outlive it.
class ItemEvictor {
 public:
  using Slot = ItemSlots::Slot;
  struct Options {
    std::int64_t capacity_items = 0;
    std::int64_t trim_every_samples = 0;  // 0: no soft capacity
    std::size_t item_bytes = 0;           // of an item's record
  };
  struct Parts {
    FrameLog* log = nullptr;
    ItemSlots* slots = nullptr;
    SelectorPair* selectors = nullptr;
  };
  ItemEvictor(const Options& options, const Parts& parts) : options_(options), parts_(parts) {}

  // Evicts up to `count` items, by the remover's choice.
  void Evict(std::int64_t count);
  // Evicts items chosen by other rules; distinct slots.
  void EvictThese(std::span<const Slot> leavers);
  // Evicts items that the sampler has lost already; distinct slots.
  void EvictSpent(std::span<const Slot> leavers);
  void TrimToCapacity();

  // Counts sampled items; true if the soft capacity must be trimmed now.
  bool CountSamples(std::uint64_t items);
  std::uint64_t samples_since_trim() const { return samples_since_trim_; }
  void RestoreSamples(std::uint64_t samples_since_trim) {
    samples_since_trim_ = samples_since_trim;
  }

  // Keeps the frames of items until Unpin, also if the items are evicted. A slot may occur twice.
  void Pin(std::span<const Slot> items);
  void Unpin();

 private:
  struct Pinned {
    FrameLog::FrameId first = 0;
    std::uint32_t count = 0;
  };
  void FreeSlot(Slot leaver);

  Options options_;
  Parts parts_;
  std::uint64_t samples_since_trim_ = 0;
  std::vector<Pinned> pinned_;
  std::vector<Slot> leaving_;  // scratch of Evict
};

}  // namespace troop
