#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replay/table/journal_source.h"

namespace troop {

struct TableParts;

// The journal's access to a table. Owner: the table, whose `parts` outlive it.
class TableJournalSource final : public JournalSource {
 public:
  explicit TableJournalSource(TableParts* parts) : parts_(parts) {}

  std::vector<std::shared_ptr<const Segment>> segments() const override;
  LogPosition position() const override;
  std::uint64_t appended() const override;
  std::uint64_t compacted_bytes() const override;
  std::vector<std::uint64_t> TakeFreed() override;
  bool MoveSegment(std::uint64_t id, Buffer bytes) override;
  std::int64_t lines() const override;
  std::int64_t dirty_lines() const override;
  std::int64_t TakeDirtyLine() override;
  void ReadLine(std::int64_t line, SlotLine* out) const override;
  TableCounters counters() const override;

 private:
  TableParts* parts_;
};

}  // namespace troop
