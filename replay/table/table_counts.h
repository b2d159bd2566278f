#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troop {

// Outcome of one insert, in items.
struct InsertCounts {
  std::int64_t inserted = 0;
  std::int64_t repeated = 0;  // the call is a repeat and had no effect
  std::int64_t expired = 0;   // frames missing: evicted (stream silent too long), or lost
  std::int64_t rejected = 0;  // not chosen by the reservoir
};

// Outcome of one priority update, in pairs of key and priority.
struct UpdateCounts {
  std::int64_t applied = 0;
  std::int64_t stale = 0;    // the item was evicted; its slot may hold another
  std::int64_t refused = 0;  // NaN, infinite or negative
};

// Outcome of a recovery from a log on disk.
struct RecoverCounts {
  std::int64_t records = 0, frames = 0, items = 0;
  std::int64_t segments_damaged = 0;   // segments with incomplete or corrupt records
  std::int64_t items_lost = 0;         // live items whose frames are missing
  std::int64_t frames_unreadable = 0;  // frames whose dictionary is unknown
  std::size_t bytes_dropped = 0;       // bytes of damaged records
  std::int64_t items_unfound = 0;      // items in the snapshot but in no record
  // Numbers of the items that each segment's insert calls added: [first, end).
  struct Inserted {
    std::uint64_t segment = 0, first = 0, end = 0;
  };
  std::vector<Inserted> inserted;
};

// Sizes of a table.
struct TableUsage {
  std::int64_t slots = 0;
  std::int64_t evicted = 0;  // all evicted items, for any reason
  std::int64_t frames = 0;   // in the log
  std::int64_t frame_capacity = 0;
  std::int64_t streams = 0;
  std::size_t bytes = 0;              // arrays and segments
  std::size_t segment_bytes = 0;      // memory of the segments
  std::size_t used_bytes = 0;         // of it: records
  std::size_t live_bytes = 0;         // of those: live frames and items
  std::uint64_t compacted_bytes = 0;  // moved by compaction so far
};

}  // namespace troop
