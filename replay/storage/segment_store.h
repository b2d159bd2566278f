#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"

namespace troop {

// The segments of a log. Opens them, appends records to the newest, counts the live bytes of each,
// and frees those without any. Owner: one thread (a FrameLog).
//
// Invariant: no sealed segment without live bytes is kept.
class SegmentStore {
 public:
  using Index = std::uint32_t;  // index of a segment in memory; reused after it is freed
  static constexpr Index kNone = ~Index{0};
  // Position of a record in memory.
  struct Place {
    Index segment = kNone;
    std::uint32_t offset = 0;
    std::byte* at = nullptr;
  };

  // `notes_freed`: record freed ids for TakeFreed.
  SegmentStore(std::size_t segment_bytes, bool notes_freed)
      : segment_bytes_(segment_bytes), notes_freed_(notes_freed) {}

  // Opens a new segment unless the record fits into the open one. The next Append of this size
  // cannot fail then. Errors: kResourceExhausted.
  Status Prepare(std::size_t record_bytes);
  // Memory that Prepare would allocate; 0 if the record fits into the open segment.
  std::size_t Needs(std::size_t record_bytes) const;
  // Reserves room for a record. REQUIRES: Prepare(record_bytes) succeeded before.
  Place Append(std::size_t record_bytes);
  // Adds a segment read from disk. REQUIRES: ids in ascending order, before any Append.
  Index Adopt(std::shared_ptr<Segment> segment);
  // Limits an adopted segment to its complete records: later bytes are not read again.
  void SetReadable(Index segment, std::size_t bytes) { slots_[segment].readable = bytes; }
  // Marks damaged bytes between complete records, in ascending order.
  void AddHole(Index segment, std::size_t begin, std::size_t end) {
    slots_[segment].holes.emplace_back(begin, end);
  }
  // Offset of the next record at `offset`, or after the damaged range that begins there.
  std::size_t SkipHole(Index segment, std::size_t offset) const {
    for (const auto& [begin, end] : slots_[segment].holes) {
      if (begin == offset) return end;
    }
    return offset;
  }
  std::span<const std::byte> readable(Index segment) const {
    const Slot& slot = slots_[segment];
    return {slot.segment->data(), std::min(slot.segment->used(), slot.readable)};
  }
  // Frees sealed segments without live bytes; call after the last Adopt.
  void FreeEmpty();

  // Counts frames and items of an appended record.
  void AddLive(Index segment, std::size_t bytes) {
    AddFull(segment, bytes);
    Revive(segment, bytes);
  }
  // The two halves of AddLive, for a segment read from disk: total content, and its live part.
  void AddFull(Index segment, std::size_t bytes) {
    slots_[segment].full += bytes;
    full_ += bytes;
  }
  void Revive(Index segment, std::size_t bytes) {
    slots_[segment].live += bytes;
    live_ += bytes;
  }
  void DropLive(Index segment, std::size_t bytes) {
    Slot& slot = slots_[segment];
    slot.live -= bytes;
    live_ -= bytes;
    if (slot.live == 0 && slot.segment->sealed()) Free(segment);
  }
  // Frame ids of the segment in record order; 0: not live when it was adopted.
  std::vector<std::uint32_t>& frames(Index segment) { return slots_[segment].frames; }

  const std::byte* base(Index segment) const { return base_[segment]; }
  const std::shared_ptr<Segment>& segment(Index index) const { return slots_[index].segment; }
  // The sealed segment with the smallest live share; kNone if all of them are fully live.
  Index Emptiest() const;

  // For a journal; see the functions of JournalSource with the same names.
  std::vector<std::shared_ptr<const Segment>> All() const;
  std::vector<std::uint64_t> TakeFreed();
  bool MoveSegment(std::uint64_t id, Buffer bytes);
  LogPosition position() const { return position_; }
  std::uint64_t appended() const { return appended_; }
  std::size_t memory() const { return memory_; }         // all segments
  std::size_t used() const { return used_; }             // of it: records
  std::size_t live() const { return live_; }             // of those: live frames and items
  std::size_t garbage() const { return full_ - live_; }  // and dead ones
  std::size_t segment_bytes() const { return segment_bytes_; }
  std::size_t largest_record() const { return largest_record_; }  // largest ever appended
  std::size_t frame_list_bytes() const;
  bool sealed(Index segment) const { return slots_[segment].segment->sealed(); }

 private:
  struct Slot {
    std::shared_ptr<Segment> segment;  // nullptr: free
    std::size_t live = 0, full = 0, memory = 0, readable = ~std::size_t{0};
    std::vector<std::uint32_t> frames;
    std::vector<std::pair<std::size_t, std::size_t>> holes;
  };
  Index AddSlot(std::shared_ptr<Segment> segment, std::size_t memory);
  void Free(Index segment);

  std::size_t segment_bytes_;
  bool notes_freed_;
  std::vector<Slot> slots_;
  std::vector<const std::byte*> base_;  // [slots], stored separately: read by each sample
  std::vector<Index> free_;
  std::vector<std::uint64_t> freed_;  // ids
  Index open_ = kNone;
  std::uint64_t next_id_ = 1;
  LogPosition position_;
  std::uint64_t appended_ = 0;
  std::size_t memory_ = 0, used_ = 0, live_ = 0, full_ = 0, largest_record_ = 0;
};

}  // namespace troop
