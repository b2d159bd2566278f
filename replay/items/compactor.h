#pragma once

#include <cstdint>
#include <vector>

#include "replay/items/item_slots.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/record.h"
#include "replay/storage/segment_store.h"

namespace troop {

// Moves live records out of the emptiest segments of a log, so that their memory can be freed.
// Owner: one thread (a table). `log` and `slots` outlive it.
//
// One segment is the victim until it is freed; a call continues where the last one stopped. Each
// call moves about as many bytes as its budget.
class Compactor {
 public:
  struct Options {
    std::size_t bytes_max = 0;  // limit for the log's segments; 0: no limit
    bool checksums = false;     // records have a CRC-32C
  };
  Compactor(const Options& options, FrameLog* log, ItemSlots* slots)
      : options_(options), log_(log), slots_(slots) {}

  // Moves live records while too much is dead, at most about `budget` bytes. Does nothing without
  // memory for a new segment or beyond bytes_max. `tight`: bytes are short, so the threshold for
  // dead bytes is lower.
  void Compact(std::size_t budget, bool tight = false);
  std::uint64_t moved_bytes() const { return moved_bytes_; }  // so far

 private:
  struct Moves;  // compactor.cc
  // Place of the next record to read.
  struct Cursor {
    SegmentStore::Index segment = SegmentStore::kNone;  // the segment being compacted
    std::uint64_t id = 0;
    std::size_t offset = 0, frame = 0;
  };
  bool WastesMuch(bool tight) const;
  bool FindVictim(bool tight);
  std::size_t ReadMoves(std::size_t bytes_max, Moves* moves);
  void CollectFrames(const Record& from, Moves* moves);
  void CollectItems(const Record& from, Moves* moves) const;
  bool WriteMoves(const Moves& moves);
  void WriteFrames(const Moves& moves, const SegmentStore::Place& place, RecordWriter* writer);
  void WriteItems(const Moves& moves, const SegmentStore::Place& place, RecordWriter* writer);

  Options options_;
  FrameLog* log_;
  ItemSlots* slots_;
  Cursor victim_;
  std::uint64_t moved_bytes_ = 0;
  Record record_;  // scratch
};

}  // namespace troop
