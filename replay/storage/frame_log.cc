// FrameLog: entries of frames, their references, and the live bytes of their segments.
#include "replay/storage/frame_log.h"

#include <utility>

#include "core/base/check.h"

namespace troop {

FrameLog::FrameLog(const Options& options, HugeArray<Entry> entry, FrameIds ids)
    : layout_(options.layout),
      capacity_(options.frames),
      inline_action_(options.layout.action_bytes <= sizeof(Entry::action)),
      entry_(std::move(entry)),
      ids_(std::move(ids)),
      store_(options.segment_bytes, options.checksums) {}

std::size_t FrameLog::Bytes(std::int64_t frames) {
  return HugeArray<Entry>::Bytes(std::size_t(frames) + 1) + FrameIds::Bytes(frames);
}

Result<FrameLog> FrameLog::Make(const Options& options) {
  TROOP_CHECK(options.frames >= 1, "a log of {} frames", options.frames);
  TROOP_ASSIGN_OR_RETURN(HugeArray<Entry> entry,
                         HugeArray<Entry>::Make(std::size_t(options.frames) + 1));
  TROOP_ASSIGN_OR_RETURN(FrameIds ids, FrameIds::Make(options.frames));
  return FrameLog(options, std::move(entry), std::move(ids));
}

// The links stay valid, since all of these frames are referenced.
void FrameLog::Refer(FrameId id, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Refer(id);
    id = entry_[id].next;
  }
}

// Reads the link before the entry may be freed.
void FrameLog::Release(FrameId id, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const FrameId next = entry_[id].next;
    Release(id);
    id = next;
  }
}

// The new copy is counted before the old one is dropped, which may free the old segment.
void FrameLog::Relocate(FrameId id, const SegmentStore::Place& record, const std::byte* observation,
                        const std::byte* action) {
  Entry& entry = entry_[id];
  const std::byte* const base = store_.base(record.segment);
  const SegmentStore::Index before = entry.segment;
  const std::size_t bytes = FrameBytes(entry);
  entry.segment = record.segment;
  entry.offset = std::uint32_t(observation - base);
  if (!inline_action_) entry.action = std::uint32_t(action - base);
  store_.AddLive(record.segment, bytes);
  store_.DropLive(before, bytes);
}

// Larger arrays replace the empty ones.
Status FrameLog::Reserve(std::int64_t frames) {
  TROOP_CHECK(ids_.untouched(), "room for {} frames besides {}", frames, ids_.live());
  if (frames <= capacity_) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(entry_, HugeArray<Entry>::Make(std::size_t(frames) + 1));
  TROOP_ASSIGN_OR_RETURN(ids_, FrameIds::Make(frames));
  return Status::Ok();
}

// References follow with the items and the tails of streams.
FrameLog::FrameId FrameLog::Adopt(const Entry& entry, std::size_t place) {
  const FrameId id = Add(entry);
  store_.Revive(entry.segment, FrameBytes(entry));
  store_.frames(entry.segment)[place] = id;
  return id;
}

}  // namespace troop
