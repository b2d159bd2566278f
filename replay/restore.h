#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/node.h"
#include "core/status.h"
#include "core/storage.h"
#include "replay/frame_codec.h"
#include "replay/journal.h"
#include "replay/table.h"

namespace troop {

// A table that was kept, or a new one where the folder is empty, and its journal.
struct RestoredTable {
  std::unique_ptr<Journal> journal;
  Table table;
  std::string owner;  // as given to Journal::SetOwner before the last complete round
  std::vector<std::shared_ptr<const FrameDictionary>> dictionaries;  // known to the table
  Table::RecoverCounts counts;
  std::size_t log_bytes = 0, torn_bytes = 0;
  bool restored = false;  // there was something
  // It ended in order: counters, priorities and keys are as they were. Draws of prioritized and
  // FIFO samplers go on as if it had not; others find the items in another order.
  bool clean = false;
};
// Blocks on the disk: for starting. `options`: checksums, incarnation and first_generation are set
// here; the table's name is not compared. Logs one line, and one for each thing that is damaged.
// Segments are mapped, not read: a sector that goes bad, or a file that somebody cuts, kills the
// process by SIGBUS when it is looked at, and all of them are at the start.
// Errors: kFailedPrecondition: what is there was kept with other options; those of ReadJournal and
// Table::Make.
Result<RestoredTable> RestoreTable(Storage* storage, Executor* executor,
                                   const Journal::Options& journal, Table::Options options);

// A table as its journal sees it. `table` outlives it.
class JournaledTable final : public Journaled {
 public:
  explicit JournaledTable(Table* table) : table_(table) {}
  std::vector<std::shared_ptr<const Segment>> segments() const override {
    return table_->segments();
  }
  LogPosition position() const override { return table_->position(); }
  std::uint64_t appended() const override { return table_->appended(); }
  std::uint64_t compacted_bytes() const override { return table_->compacted_bytes(); }
  std::vector<std::uint64_t> TakeFreed() override { return table_->TakeFreed(); }
  bool MoveSegment(std::uint64_t id, Buffer bytes) override {
    return table_->MoveSegment(id, std::move(bytes));
  }
  std::int64_t lines() const override { return table_->lines(); }
  std::int64_t dirty_lines() const override { return table_->dirty_lines(); }
  std::int64_t TakeDirtyLine() override { return table_->TakeDirtyLine(); }
  void ReadLine(std::int64_t line, SlotLine* out) const override { table_->ReadLine(line, out); }
  TableCounters counters() const override { return table_->counters(); }

 private:
  Table* const table_;
};

}  // namespace troop
