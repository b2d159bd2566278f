#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "replay/segment.h"
#include "replay/snapshot.h"

namespace troop {

// The segments of a log: opens them, appends records to the newest, counts what lives in each, and
// lets go of those in which nothing does. Owner: one thread (a FrameLog).
//
// Invariant: a sealed segment with no live bytes is not here.
class SegmentStore {
 public:
  using Index = std::uint32_t;  // of a segment in memory; used again when it is gone
  static constexpr Index kNone = ~Index{0};
  struct Place {
    Index segment = kNone;
    std::uint32_t offset = 0;
    std::byte* at = nullptr;
  };

  // `notes_freed`: somebody asks TakeFreed.
  SegmentStore(std::size_t segment_bytes, bool notes_freed)
      : segment_bytes_(segment_bytes), notes_freed_(notes_freed) {}

  // Opens a new segment unless the record fits into the open one. After that Append of the same
  // size can't fail. Errors: kResourceExhausted.
  Status Prepare(std::size_t record_bytes);
  // The memory that Prepare would take for it; 0: it fits into the open one.
  std::size_t Needs(std::size_t record_bytes) const;
  Place Append(std::size_t record_bytes);
  // A segment read from disk. REQUIRES: ids in ascending order, before any Append.
  Index Adopt(std::shared_ptr<Segment> segment);
  // Records of an adopted segment were whole up to here: nothing behind is looked at again.
  void SetReadable(Index segment, std::size_t bytes) { slots_[segment].readable = bytes; }
  // Damaged bytes of it, between whole records. In ascending order.
  void AddHole(Index segment, std::size_t begin, std::size_t end) {
    slots_[segment].holes.emplace_back(begin, end);
  }
  // Where the record is that comes next at an offset or behind the hole that begins there.
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
  // Lets go of sealed segments without live bytes: after the last Adopt.
  void FreeEmpty();

  // Frames and items of a record that was appended: what they take.
  void AddLive(Index segment, std::size_t bytes) {
    AddFull(segment, bytes);
    Revive(segment, bytes);
  }
  // The two halves of AddLive, for a segment that is read: what a record holds, and which of it
  // lives.
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
  // Frames of the segment in the order of its records; 0: not alive when it was adopted.
  std::vector<std::uint32_t>& frames(Index segment) { return slots_[segment].frames; }

  const std::byte* base(Index segment) const { return base_[segment]; }
  const std::shared_ptr<Segment>& segment(Index index) const { return slots_[index].segment; }
  // The sealed segment with the least alive of what it held; kNone: none has lost anything.
  Index Emptiest() const;

  std::vector<std::shared_ptr<const Segment>> All() const;
  std::vector<std::uint64_t> TakeFreed();
  bool MoveSegment(std::uint64_t id, Buffer bytes);
  LogPosition position() const { return position_; }
  std::uint64_t appended() const { return appended_; }
  std::size_t memory() const { return memory_; }         // of all segments
  std::size_t used() const { return used_; }             // of them: records
  std::size_t live() const { return live_; }             // of them: frames and items that live
  std::size_t garbage() const { return full_ - live_; }  // and that no longer do
  std::size_t segment_bytes() const { return segment_bytes_; }
  std::size_t largest_record() const { return largest_record_; }  // that was ever appended
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
  std::vector<const std::byte*> base_;  // [slots], beside them: read at each draw
  std::vector<Index> free_;
  std::vector<std::uint64_t> freed_;  // ids
  Index open_ = kNone;
  std::uint64_t next_id_ = 1;
  LogPosition position_;
  std::uint64_t appended_ = 0;
  std::size_t memory_ = 0, used_ = 0, live_ = 0, full_ = 0, largest_record_ = 0;
};

}  // namespace troop
