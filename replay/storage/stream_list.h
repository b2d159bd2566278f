#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/tensor/trajectory.h"
#include "replay/storage/frame_log.h"

namespace troop {

// The known streams in the order of their last activity, and the newest frames (the tail) of each,
// which later items may refer to. When frames run short, the stream that was silent longest is
// evicted; streams of the current insert call are pinned and stay. Owner: one thread (a Table).
// Cost: O(1) on average, and O(history()) where a tail changes.
//
// Invariants:
//   1. A tail has at most history() frames, and the log counts one reference for each.
//   2. Streams are listed in ascending order of `touched`.
class StreamList {
 public:
  using FrameId = FrameLog::FrameId;
  using Index = std::uint32_t;  // index of a stream; reused after the stream is removed
  static constexpr Index kNone = ~Index{0};
  struct Stream {
    StreamId id = 0;
    std::uint64_t next_frame = 0;  // 0: no frame was received
    std::vector<FrameId> tail;     // [<= history()], consecutive, newest last
    std::uint64_t touched = 0;     // frames_ever_ when it last sent frames
    std::uint64_t call = 0;        // the call that last pinned it
    Index older = kNone, newer = kNone;
  };

  // `log` must outlive this object. REQUIRES: history >= 1.
  StreamList(FrameLog* log, int history);
  StreamList(const StreamList&) = delete;
  StreamList& operator=(const StreamList&) = delete;

  // ---- Lookup ----

  const Stream& operator[](Index index) const { return stream_[index]; }
  Index Find(StreamId id) const;                   // kNone: unknown
  std::uint64_t NextFrame(StreamId stream) const;  // 0: unknown
  std::int64_t size() const { return std::int64_t(index_.size()); }
  int history() const { return history_; }  // newest frames of each stream to keep
  // True if the tails hold more than 3/4 of the log's capacity.
  bool tails_hold_much() const { return tail_frames_ > log_->capacity() / 4 * 3; }

  // ---- An insert call ----

  // Begins a call: no stream is pinned.
  void BeginCall() { ++call_; }
  // Pins a stream until the next call begins. False if it was pinned before.
  bool Pin(Index index);
  // Adds a stream without frames as the newest. REQUIRES: its id is unknown.
  Index Add(StreamId id);
  // Removes a stream and releases its tail. Items over these frames that come later expire.
  void Remove(Index index);
  // Counts frames received from any stream: the measure of silence.
  void CountReceived(std::uint64_t frames) { frames_ever_ += frames; }
  // Replaces a stream's tail by consecutive frames that end before `next_frame`; it becomes the
  // newest.
  void Advance(Index index, std::uint64_t next_frame, std::span<const FrameId> tail);

  // ---- Eviction ----

  // Removes the stream that was silent longest. False if all streams are pinned.
  bool EvictSilent();
  // Removes streams that were silent for a whole log of frames, up to the first pinned one.
  void EvictStale();

  // ---- Recovery from a log on disk ----

  // Adds a stream with its tail, unless it is known. Oldest streams first. REQUIRES: at most
  // history() frames, in the log, consecutive, and the last before `next_frame`.
  void Adopt(StreamId id, std::uint64_t next_frame, std::span<const FrameId> tail);

 private:
  void ReplaceTail(Stream* stream, std::uint64_t next_frame, std::span<const FrameId> tail);
  void Unlink(Index index);
  void LinkNewest(Index index);

  FrameLog* log_;
  int history_;
  std::unordered_map<StreamId, Index> index_;
  std::vector<Stream> stream_;
  std::vector<Index> free_;
  Index oldest_ = kNone, newest_ = kNone;  // by `touched`
  std::int64_t tail_frames_ = 0;           // in all tails
  std::uint64_t frames_ever_ = 0;
  std::uint64_t call_ = 1;  // number of the current call
};

}  // namespace troop
