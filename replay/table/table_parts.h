#pragma once

#include <memory>

#include "core/base/status.h"
#include "replay/items/compactor.h"
#include "replay/items/delta_feed.h"
#include "replay/items/item_evictor.h"
#include "replay/items/item_slots.h"
#include "replay/items/policy_age.h"
#include "replay/items/selector_pair.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/insert_window.h"
#include "replay/storage/snapshot.h"
#include "replay/storage/stream_list.h"
#include "replay/table/inserter.h"
#include "replay/table/item_sampler.h"
#include "replay/table/priority_updater.h"
#include "replay/table/table_journal_source.h"
#include "replay/table/table_options.h"

namespace troop {

// The parts of a table, at fixed addresses, since later ones refer to earlier ones. Owner: a Table.
// Product code includes it only in the sources of Table, of its journal source and of its recovery.
struct TableParts {
  // Errors: kInvalidArgument (TableOptions::Check), kResourceExhausted.
  static Result<std::unique_ptr<TableParts>> Make(const TableOptions& options);
  // Use Make, which makes the allocations that can fail.
  TableParts(const TableOptions& o, FrameLog frame_log, ItemSlots item_slots,
             SelectorPair selector_pair);
  TableParts(const TableParts&) = delete;
  TableParts& operator=(const TableParts&) = delete;

  // The counters of a snapshot. reserved[0] is the position of the remover's random numbers.
  TableCounters Counters() const;
  // Continues from the counters of an earlier process, none below what the items show. REQUIRES:
  // the items were restored.
  void RestoreCounters(const TableCounters& counters);

  TableOptions options;
  // State.
  FrameLog log;
  StreamList streams;   // with their tails in `log`
  InsertWindow window;  // of the current insert call
  ItemSlots slots;
  SelectorPair selectors;
  PolicyAge ages;
  DeltaFeed feed;
  // Operations.
  ItemEvictor evictor;
  Compactor compactor;
  Inserter inserter;
  ItemSampler sampler;
  PriorityUpdater updater;
  TableJournalSource journal_source;
};

}  // namespace troop
