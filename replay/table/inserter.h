#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "replay/codec/encoded_insert.h"
#include "replay/items/compactor.h"
#include "replay/storage/insert_window.h"
#include "replay/table/insert_checker.h"
#include "replay/table/item_adder.h"
#include "replay/table/room_maker.h"
#include "replay/table/table_counts.h"
#include "replay/table/table_options.h"

namespace troop {

// Executes insert calls of a table: checks a call completely, plans its frames and items, makes
// room, then adds it. Owner: one thread (a table). The parts of `adder` and `room` outlive it.
class Inserter {
 public:
  Inserter(const TableOptions& options, const ItemAdder::Parts& adder,
           const RoomMaker::Parts& room);

  // Table::Insert: all or nothing.
  Result<InsertCounts> Insert(const EncodedInsert& call);

  InsertChecker& checker() { return checker_; }
  // Items offered to a reservoir so far. Part of snapshots.
  std::uint64_t seen() const { return seen_; }
  void RestoreSeen(std::uint64_t seen) { seen_ = seen; }

 private:
  Result<std::size_t> Plan(std::span<const InsertWindow::ChunkView> chunks,
                           std::span<const Item> items, InsertCounts* counts);
  Status PlanItems(std::span<const Item> items, InsertCounts* counts);
  void SampleReservoir(InsertCounts* counts);

  int stack_;
  bool reservoir_;
  EventHistory* history_;
  ItemAdder::Parts parts_;
  Compactor* compactor_;
  InsertChecker checker_;
  RoomMaker room_;
  ItemAdder adder_;
  std::uint64_t seen_ = 0;
  std::vector<ItemAdder::Planned> planned_;  // items of the current call
};

}  // namespace troop
