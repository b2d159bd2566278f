#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/event_history.h"
#include "core/tensor/trajectory.h"
#include "replay/items/delta_feed.h"
#include "replay/items/item_evictor.h"
#include "replay/items/item_slots.h"
#include "replay/items/policy_age.h"
#include "replay/items/selector_pair.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/insert_window.h"
#include "replay/table/table_options.h"

namespace troop {

// Records an event of an item, if there is a history.
void NoteItemEvent(EventHistory* history, HistoryEvent::What what, const Item& item);

// Adds checked items to a table: their frames and records to the log, the items to slots, and in
// batches to the selectors. Cannot fail. Owner: one thread (a table). `parts` outlive it.
class ItemAdder {
 public:
  using Slot = ItemSlots::Slot;
  struct Parts {
    FrameLog* log = nullptr;
    InsertWindow* window = nullptr;
    ItemSlots* slots = nullptr;
    SelectorPair* selectors = nullptr;
    PolicyAge* ages = nullptr;
    ItemEvictor* evictor = nullptr;
    DeltaFeed* feed = nullptr;
  };
  // An item of the call that passed all checks.
  struct Planned {
    InsertWindow::Located at;
    std::uint32_t item = 0;  // index in the call
  };
  ItemAdder(const TableOptions& options, const Parts& parts);

  // Appends the call's record to the log and adds the planned ones of `items`. If the slots are
  // full, each new item replaces one that the remover picks, possibly of this call. REQUIRES: the
  // conditions of InsertWindow::Write.
  void Add(std::span<const Planned> planned, std::span<const Item> items);

 private:
  // The record of the call.
  struct OpenRecord {
    SegmentStore::Place place;
    RecordWriter writer;
  };
  Slot AddItem(const Planned& plan, const Item& newcomer);
  void WriteItem(Slot slot, const Item& newcomer, std::uint32_t index, OpenRecord* record);
  void AddToSelectors();

  double epsilon_;
  bool item_records_;
  bool checksums_;
  EventHistory* history_;
  Parts parts_;
  // Items that are in slots but not yet in the selectors.
  std::vector<Slot> added_;
  std::vector<float> priority_;  // [added_]
};

}  // namespace troop
