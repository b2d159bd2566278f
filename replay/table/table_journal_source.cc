// TableJournalSource: the log and the slots of a table, as its journal reads them.
#include "replay/table/table_journal_source.h"

#include <utility>

#include "replay/table/table_parts.h"

namespace troop {

// ---- Log ----------------------------------------------------------------------------------------

std::vector<std::shared_ptr<const Segment>> TableJournalSource::segments() const {
  return parts_->log.store().All();
}
LogPosition TableJournalSource::position() const { return parts_->log.store().position(); }
std::uint64_t TableJournalSource::appended() const { return parts_->log.store().appended(); }
std::uint64_t TableJournalSource::compacted_bytes() const {
  return parts_->compactor.moved_bytes();
}
std::vector<std::uint64_t> TableJournalSource::TakeFreed() {
  return parts_->log.store().TakeFreed();
}
bool TableJournalSource::MoveSegment(std::uint64_t id, Buffer bytes) {
  return parts_->log.store().MoveSegment(id, std::move(bytes));
}

// ---- Snapshots: lines of slots, and counters ----------------------------------------------------

std::int64_t TableJournalSource::lines() const { return parts_->slots.lines(); }
std::int64_t TableJournalSource::dirty_lines() const { return parts_->slots.dirty_lines().count(); }
std::int64_t TableJournalSource::TakeDirtyLine() { return parts_->slots.dirty_lines().Take(); }
void TableJournalSource::ReadLine(std::int64_t line, SlotLine* out) const {
  parts_->slots.ReadLine(line, out);
}
TableCounters TableJournalSource::counters() const { return parts_->Counters(); }

}  // namespace troop
