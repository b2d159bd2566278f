#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/philox.h"
#include "replay/codec/encoded_batch.h"
#include "replay/items/item_evictor.h"
#include "replay/items/item_slots.h"
#include "replay/items/policy_age.h"
#include "replay/items/selector_pair.h"
#include "replay/storage/frame_log.h"
#include "replay/table/item_gatherer.h"
#include "replay/table/table_options.h"

namespace troop {

// Samples batches from a table, and evicts the items that are too old or whose last sample it was.
// Owner: one thread (a table). `parts` outlive it.
class ItemSampler {
 public:
  struct Parts {
    const FrameLog* log = nullptr;
    ItemSlots* slots = nullptr;
    SelectorPair* selectors = nullptr;
    PolicyAge* ages = nullptr;
    ItemEvictor* evictor = nullptr;
  };
  ItemSampler(const TableOptions& options, const Parts& parts);

  // Table::Draw. REQUIRES: batch > 0, parts.selectors->can_draw().
  void Draw(std::int64_t batch, EncodedBatch* out);
  std::span<const std::uint64_t> drawn_age() const { return gatherer_.age(); }
  // Number of the next draw, which keys its random numbers. Part of snapshots.
  std::uint64_t draws() const { return draws_; }
  void RestoreDraws(std::uint64_t draws) { draws_ = draws; }

 private:
  using Slot = ItemSlots::Slot;
  void EvictStaleItems();
  void Choose(std::int64_t batch, EncodedBatch* out);
  void ChooseAmongDrawable(Rng* rng, double total, std::vector<double>* probability);
  bool CountSample(Slot drawn);
  void EvictAfterSample();

  std::uint64_t seed_;
  std::uint64_t incarnation_;
  std::int64_t max_times_sampled_;
  Parts parts_;
  ItemGatherer gatherer_;
  std::uint64_t draws_ = 0;
  // State of the current draw.
  std::vector<Slot> chosen_;
  std::vector<Slot> spent_;  // sampled for the last time: out of the sampler, not yet evicted
  std::vector<Slot> stale_;
};

}  // namespace troop
