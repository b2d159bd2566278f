#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/record.h"
#include "replay/storage/segment_store.h"
#include "replay/storage/stream_list.h"

namespace troop {

// The frames that the items of one insert call may refer to: for each stream of the call its tail,
// then the call's new frames. Plans the call, finds the frames of its items, and adds the new
// frames to the log and to the tails of their streams. Owner: one thread (a Table). Cost: O(frames
// of the window).
//
// An insert call is Plan, then Locate for each item, then either Abandon, which undoes everything,
// or the conditions of Write, Write, references for its items, and End.
class InsertWindow {
 public:
  using FrameId = FrameLog::FrameId;
  // A checked chunk of an insert call; the columns point into the message.
  struct ChunkView {
    StreamId stream = 0;
    std::uint64_t first_frame = 0;
    std::uint32_t frames = 0;
    std::uint32_t encoded_bytes = 0;
    ChunkColumns columns;
  };
  // Frames of an item: [begin, begin + lead + length] of the window.
  struct Located {
    std::uint32_t begin = 0;
    std::uint32_t lead = 0;
  };

  // Both must outlive this object. `streams` has its tails in `log`.
  InsertWindow(FrameLog* log, StreamList* streams) : log_(log), streams_(streams) {}
  InsertWindow(const InsertWindow&) = delete;
  InsertWindow& operator=(const InsertWindow&) = delete;

  // ---- Plan: changes nothing that Abandon does not undo ----

  // True if all frames were received before (and there are some).
  bool HasAll(std::span<const ChunkView> chunks) const;
  // Takes up the chunks of a call. Errors: kInvalidArgument: frames received before;
  // kResourceExhausted: more than half a log. After an error: Abandon.
  Status Plan(std::span<const ChunkView> chunks);
  // Finds an item's frames; nullopt if some were evicted or lost. Errors: kInvalidArgument.
  Result<std::optional<Located>> Locate(const Item& item, int lead_asked);
  void Abandon();

  // ---- Conditions of Write ----

  bool has_room() const { return log_->frames() + std::int64_t(new_frames_) <= log_->capacity(); }
  // True if an otherwise empty log has room; frames held by the call's own streams stay.
  bool fits_alone() const;
  // Size of the call's record with `items` items.
  std::size_t RecordBytes(std::uint32_t items) const;

  // ---- Write ----

  // Appends the record and the entries of its frames. The caller fills in items and states, and
  // calls Finish. REQUIRES: has_room(), and that the log's store prepared RecordBytes(items).
  RecordWriter Write(std::uint32_t items, SegmentStore::Place* place);
  // Id of a frame of the window. REQUIRES: it is of a tail, or Write was called.
  FrameId Id(std::uint32_t window) const { return window_[window].id; }
  // Ids of the frames that Write stored at `place`.
  std::span<const FrameId> written(const SegmentStore::Place& place) {
    return std::span<const FrameId>(log_->store().frames(place.segment)).last(new_frames_);
  }
  // Ends the call: frames that neither an item nor a tail refers to are freed.
  void End();

 private:
  static constexpr std::uint32_t kNoRun = ~std::uint32_t{0};
  // Consecutive frames of a stream: its tail, then new frames.
  struct Run {
    std::uint64_t first_frame = 0;
    std::uint32_t begin = 0, count = 0;  // in the window
    std::uint32_t before = kNoRun;       // previous run of the stream, separated by a gap
    bool knows_start = false;            // its first frame begins an episode
    std::uint64_t next_frame() const { return first_frame + count; }
  };
  struct WindowFrame {
    FrameId id = 0;             // 0: new in this call, without an id yet
    std::uint32_t episode = 0;  // window index of the episode's first known frame
    bool first = false, final = false;
  };
  // Use of a stream by the call.
  struct Use {
    std::uint32_t run = kNoRun;  // newest run
    bool appended = false;       // it has new frames
    bool created = false;        // it was unknown before
  };

  StreamList::Index Touch(StreamId id);  // StreamList::kNone: unknown
  void OpenRun(StreamList::Index stream, std::uint64_t first_frame, bool knows_start);
  void OpenTail(StreamList::Index stream);
  Status PlanChunk(const ChunkView& chunk);
  void AddToRun(const ChunkView& chunk);
  std::uint32_t FindRun(std::uint32_t newest, std::uint64_t frame) const;
  void AddFrames(std::size_t chunk, const ChunkColumns& at, const SegmentStore::Place& place);
  void KeepTail(StreamList::Index stream);

  FrameLog* log_;
  StreamList* streams_;
  std::vector<ChunkView> chunks_;
  std::vector<ChunkRecord> headers_;         // [chunks]
  std::vector<std::uint32_t> chunk_window_;  // [chunks] window index of the first frame
  std::vector<StreamList::Index> touched_;   // streams of the call
  StreamId last_id_ = 0;                     // valid if touched_ is not empty
  StreamList::Index last_index_ = 0;
  std::vector<Use> use_;  // by stream index; valid for touched streams
  std::vector<Run> run_;
  std::vector<WindowFrame> window_;
  std::uint64_t new_frames_ = 0, new_bytes_ = 0;
  std::vector<FrameId> tail_;  // scratch
};

}  // namespace troop
