#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/status.h"
#include "replay/storage/frame_ids.h"
#include "replay/storage/huge_array.h"
#include "replay/storage/record.h"
#include "replay/storage/segment_store.h"

namespace troop {

// Stores every frame once, whatever refers to it: its bytes in a record of a segment, and an entry
// with their position. A frame has an id that stays constant while it lives, and it lives while it
// is referenced. The log has no notion of streams, items or insert calls. Owner: one thread (a
// Table).
//
// Invariants:
//   1. The bytes of a live frame count as live bytes of the segment that its entry points to.
//   2. Frames that are referenced together by Refer(id, count) are linked, and stay linked until
//      the matching Release(id, count).
class FrameLog {
 public:
  using FrameId = FrameIds::Id;  // 0: none
  // Metadata of a frame; half a cache line.
  struct Entry {
    float reward = 0;
    float discount = 0;
    FrameId next = 0;  // next frame of the episode, if received; valid while both live
    std::uint32_t references : 30 = 0;
    std::uint32_t first : 1 = 0;  // first of an episode, or after a gap
    std::uint32_t final : 1 = 0;
    SegmentStore::Index segment = 0;
    std::uint32_t offset = 0;  // of the observation
    std::uint32_t bytes = 0;   // encoded size of the observation
    std::uint32_t action = 0;  // offset of the action; the action itself if <= 4 bytes
  };
  static_assert(sizeof(Entry) == 32);
  struct Options {
    RecordLayout layout;
    std::int64_t frames = 0;  // capacity
    std::size_t segment_bytes = std::size_t{1} << 20;
    bool checksums = false;
  };

  static Result<FrameLog> Make(const Options& options);  // kResourceExhausted
  static std::size_t Bytes(std::int64_t frames);         // arrays, without segments

  // ---- Append ----

  // Describes frame `index` of a chunk that a record of `segment` has at `columns`; no references,
  // no link. `offset`: of its observation, advanced to that of the next frame.
  Entry Describe(const ChunkColumns& columns, std::uint32_t index, SegmentStore::Index segment,
                 std::uint32_t* offset) const;
  // Adds an entry. The caller counts its bytes as live (store().AddLive) and adds its id to
  // store().frames(). REQUIRES: frames() < capacity(), or room of Reserve.
  FrameId Add(const Entry& entry) {
    const FrameId id = ids_.Take();
    entry_[id] = entry;
    return id;
  }
  // Notes that `next` follows a frame in its episode.
  void Link(FrameId id, FrameId next) { entry_[id].next = next; }

  // ---- Reclaim ----

  // Adds or drops a reference to one frame. The last reference frees it.
  void Refer(FrameId id) { ++entry_[id].references; }
  void Release(FrameId id) {
    if (--entry_[id].references == 0) Free(id);
  }
  // Adds or drops a reference to `count` frames from `id` on, along their links.
  void Refer(FrameId id, std::uint32_t count);
  void Release(FrameId id, std::uint32_t count);
  // Points a frame's entry to its moved bytes.
  void Relocate(FrameId id, const SegmentStore::Place& record, const std::byte* observation,
                const std::byte* action);

  // ---- Read ----

  const Entry& entry(FrameId id) const { return entry_[id]; }
  const std::byte* observation(const Entry& entry) const {
    return store_.base(entry.segment) + entry.offset;
  }
  const std::byte* action(const Entry& entry) const {
    return inline_action_ ? reinterpret_cast<const std::byte*>(&entry.action)
                          : store_.base(entry.segment) + entry.action;
  }
  bool inline_action() const { return inline_action_; }

  // ---- Recovery from a log on disk ----

  // Allocates entries for `frames` frames, even beyond the capacity: frames() may then exceed it.
  // REQUIRES: no frame was added yet. Errors: kResourceExhausted.
  Status Reserve(std::int64_t frames);
  // Adds the entry of a frame in an adopted segment, and counts its bytes as live. `place`: its
  // index in store().frames(). REQUIRES: room for it (Reserve); no references yet.
  FrameId Adopt(const Entry& entry, std::size_t place);

  SegmentStore& store() { return store_; }
  const SegmentStore& store() const { return store_; }
  const RecordLayout& layout() const { return layout_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t frames() const { return ids_.live(); }
  FrameId last_id() const { return ids_.last(); }
  std::size_t array_bytes() const { return entry_.bytes() + ids_.bytes(); }

 private:
  FrameLog(const Options& options, HugeArray<Entry> entry, FrameIds ids);
  std::size_t FrameBytes(const Entry& entry) const { return entry.bytes + layout_.column_bytes(); }
  void Free(FrameId id);
  // The bytes of an action of at most 4, almost always of 4.
  std::uint32_t InlineAction(const std::byte* action) const {
    if (layout_.action_bytes == sizeof(std::uint32_t)) return Load<std::uint32_t>(action, 0);
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, action, layout_.action_bytes);
    return bytes;
  }

  RecordLayout layout_;
  std::int64_t capacity_ = 0;
  bool inline_action_ = false;
  HugeArray<Entry> entry_;  // [last_id() + 1]; entry 0 is unused, since id 0 means none
  FrameIds ids_;
  SegmentStore store_;
};

// Inline, as they run for each frame of an insert: the entry is built where it is stored.
// The action is copied into the entry if it fits.
inline FrameLog::Entry FrameLog::Describe(const ChunkColumns& columns, std::uint32_t index,
                                          SegmentStore::Index segment,
                                          std::uint32_t* offset) const {
  Entry entry{.reward = Load<float>(columns.reward, index),
              .discount = Load<float>(columns.discount, index)};
  entry.first = (columns.final[index] & kFirstMark) != std::byte{0};
  entry.final = (columns.final[index] & kFinalMark) != std::byte{0};
  entry.segment = segment;
  entry.offset = *offset;
  entry.bytes = layout_.has_codec ? Load<std::uint32_t>(columns.frame_bytes, index)
                                  : std::uint32_t(layout_.observation_bytes);
  *offset += entry.bytes;
  const std::byte* const action = columns.action + index * layout_.action_bytes;
  entry.action =
      inline_action_ ? InlineAction(action) : std::uint32_t(action - store_.base(segment));
  return entry;
}

// Live bytes of its segment decrease, which may free the segment.
inline void FrameLog::Free(FrameId id) {
  const Entry& entry = entry_[id];
  store_.DropLive(entry.segment, FrameBytes(entry));
  ids_.Free(id);
}

}  // namespace troop
