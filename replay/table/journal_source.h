#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/buffer.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"

namespace troop {

// Data and operations that a journal needs from a table: the log as bytes, and the state outside
// the log. Owner: the thread of the table.
//
// Snapshots read and write lines of slots (kSlotsPerLine slots each); a line is dirty if it changed
// since it was taken.
class JournalSource {
 public:
  virtual ~JournalSource() = default;
  virtual std::vector<std::shared_ptr<const Segment>> segments()
      const = 0;                                      // by id; the last is open
  virtual LogPosition position() const = 0;           // end of the log
  virtual std::uint64_t appended() const = 0;         // total bytes of records
  virtual std::uint64_t compacted_bytes() const = 0;  // of them: moved by compaction
  // Ids of segments that became empty since the last call. Their files are needed until the
  // records that were moved out of them are durable.
  virtual std::vector<std::uint64_t> TakeFreed() = 0;
  // Segment::MoveTo. False if there is no such segment, or it is unsealed or of another size.
  virtual bool MoveSegment(std::uint64_t id, Buffer bytes) = 0;
  virtual std::int64_t lines() const = 0;
  virtual std::int64_t dirty_lines() const = 0;
  virtual std::int64_t TakeDirtyLine() = 0;  // round robin; -1: none
  virtual void ReadLine(std::int64_t line, SlotLine* out) const = 0;
  virtual TableCounters counters() const = 0;
};

}  // namespace troop
