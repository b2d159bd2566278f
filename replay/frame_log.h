#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "core/trajectory.h"
#include "replay/big_array.h"
#include "replay/record.h"
#include "replay/segment_store.h"
#include "replay/view.h"

namespace troop {

// Every frame once, whatever items look at it. A frame has an id that never changes while it lives,
// and an entry that says where its bytes are now. It lives as long as something refers to it: items
// that look at it, and its stream, of whose newest frames later items may make use (`history`).
// Owner: one thread (a Table).
//
// A call is Plan, then Locate for its items, and then either Abandon, which leaves nothing behind,
// or MakeRoom's conditions, Write, references for its items, End.
class FrameLog {
 public:
  using FrameId = std::uint32_t;  // 0: none
  struct Entry {
    float reward = 0;
    float discount = 0;
    FrameId next = 0;  // the stream's next frame in the episode, if it came; good while both live
    std::uint32_t references : 30 = 0;
    std::uint32_t first : 1 = 0;  // of an episode, or of what came after a gap
    std::uint32_t final : 1 = 0;
    SegmentStore::Index segment = 0;
    std::uint32_t offset = 0;  // of the observation
    std::uint32_t bytes = 0;   // of the observation, encoded
    std::uint32_t action = 0;  // offset of the action; the action itself where it has <= 4 bytes
  };
  static_assert(sizeof(Entry) == 32);
  struct Options {
    RecordLayout layout;
    std::int64_t frames = 0;  // capacity
    int history = 1;          // newest frames of a stream that stay
    std::size_t segment_bytes = std::size_t{1} << 20;
    bool checksums = false;
  };
  struct ChunkView {
    StreamId stream = 0;
    std::uint64_t first_frame = 0;
    std::uint32_t frames = 0;
    std::uint32_t encoded_bytes = 0;
    ChunkColumns columns;
  };
  // Where the frames of an item are: [begin, begin + lead + length] of the call's window.
  struct Located {
    std::uint32_t begin = 0;
    std::uint32_t lead = 0;
  };

  static Result<FrameLog> Make(const Options& options);  // kResourceExhausted
  static std::size_t Bytes(const Options& options);      // of arrays, segments not counted

  // ---- A call ----

  // Whether all frames came before (and there are some). Asks only.
  bool HasAll(std::span<const ChunkView> chunks) const;
  // Errors: kInvalidArgument: frames that came before; kResourceExhausted: more than half a log.
  // After an error: Abandon.
  Status Plan(std::span<const ChunkView> chunks);
  // nullopt: some of its frames are gone. Errors: kInvalidArgument.
  Result<std::optional<Located>> Locate(const Item& item, int lead_asked);
  void Abandon();
  bool has_room() const { return frames() + std::int64_t(new_frames_) <= capacity_; }
  // Whether an otherwise empty log has room: what streams of the call hold stays with it.
  bool fits_alone() const;
  // Forgets the stream that was silent longest. False: there is none but the call's.
  bool ForgetSilentStream();
  bool streams_hold_much() const { return tail_frames_ > capacity_ / 4 * 3; }
  // Bytes of the call's record, with `items` items in it.
  std::size_t RecordBytes(std::uint32_t items) const;
  // Appends the record and the entries of its frames. The caller fills in items and states, and
  // calls Finish. REQUIRES: has_room(), store().Prepare(RecordBytes(items)).
  RecordWriter Write(std::uint32_t items, SegmentStore::Place* place);
  FrameId Id(std::uint32_t window) const { return window_[window].id; }
  // Of the frames that Write has brought to `place`.
  std::span<const FrameId> written(const SegmentStore::Place& place) {
    return std::span<const FrameId>(store_.frames(place.segment)).last(new_frames_);
  }
  void End();

  // ---- Frames ----

  const Entry& entry(FrameId id) const { return entry_[id]; }
  Entry& entry(FrameId id) { return entry_[id]; }
  // `count` frames from `id` on, along their links.
  void Refer(FrameId id, std::uint32_t count);
  void Release(FrameId id, std::uint32_t count);
  const std::byte* observation(const Entry& entry) const {
    return store_.base(entry.segment) + entry.offset;
  }
  const std::byte* action(const Entry& entry) const {
    return inline_action_ ? reinterpret_cast<const std::byte*>(&entry.action)
                          : store_.base(entry.segment) + entry.action;
  }
  bool inline_action() const { return inline_action_; }
  // The frame's bytes are here now.
  void Relocate(FrameId id, const SegmentStore::Place& record, const std::byte* observation,
                const std::byte* action);
  std::size_t FrameBytes(const Entry& entry) const {
    return entry.bytes + options_.layout.column_bytes();
  }

  // ---- Out of a log that was read ----

  struct Recovered {
    StreamId stream = 0;
    std::uint64_t frame = 0;
    SegmentStore::Index segment = 0;
    std::uint32_t place = 0;  // index in store().frames(segment)
    Entry entry;
    FrameId id = 0;
  };
  // Entries for so many frames, be it beyond the capacity: has_room() is false until enough of them
  // left. REQUIRES: no frame came yet. Errors: kResourceExhausted.
  Status Reserve(std::int64_t frames);
  // An entry for a frame, without references. REQUIRES: there is one (Reserve).
  FrameId Adopt(const Recovered& frame);
  // The newest frames of a stream, ascending and without gaps; [tail] ids. Oldest streams first.
  void AdoptStream(StreamId stream, std::uint64_t next_frame, std::span<const FrameId> tail);

  SegmentStore& store() { return store_; }
  const SegmentStore& store() const { return store_; }
  const Options& options() const { return options_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t frames() const { return std::int64_t(fresh_ - unused_count_); }
  FrameId last_id() const { return FrameId(entry_.size() - 1); }
  std::int64_t streams() const { return std::int64_t(index_.size()); }
  std::uint64_t NextFrame(StreamId stream) const;  // 0: unknown
  std::size_t array_bytes() const { return entry_.bytes() + unused_.bytes(); }

 private:
  static constexpr std::uint32_t kNoStream = ~std::uint32_t{0};
  static constexpr std::uint32_t kNoRun = ~std::uint32_t{0};
  struct Stream {
    StreamId id = 0;
    std::uint64_t next_frame = 0;
    std::vector<FrameId> tail;  // [<= history], the newest last
    std::uint64_t touched = 0;  // frames that had come when it last sent some
    std::uint32_t older = kNoStream, newer = kNoStream;
    std::uint64_t call = 0;      // in which it was last looked at
    std::uint32_t run = kNoRun;  // of that call: its newest
    bool appended = false;       // in that call
    bool created = false;        // by that call
  };
  // Consecutive frames of a stream in the window of a call: its tail, then what comes.
  struct Run {
    std::uint32_t stream = 0;
    std::uint64_t first_frame = 0;
    std::uint32_t begin = 0, count = 0;
    std::uint32_t before = kNoRun;  // of the same stream, with a gap in between
    bool knows_start = false;       // its first frame begins an episode
  };
  struct WindowFrame {
    FrameId id = 0;             // 0: comes with this call, and has none yet
    std::uint32_t episode = 0;  // window index of the episode's first frame, as far as is known
    bool first = false, final = false;
  };

  FrameLog(const Options& options, BigArray<Entry> entry, BigArray<std::uint64_t> unused);
  FrameId Allocate();
  void Free(FrameId id);
  std::uint32_t Touch(StreamId id);  // its index, looked at in this call; kNoStream: unknown
  std::uint32_t Create(StreamId id);
  void Forget(std::uint32_t stream);
  void Unlink(std::uint32_t stream);
  void LinkNewest(std::uint32_t stream);
  void OpenRun(std::uint32_t stream, bool with_tail);
  void PlanChunk(const ChunkView& chunk);
  void AddToRun(const ChunkView& chunk);
  void FillEntries(const ChunkView& chunk, const ChunkColumns& at, const SegmentStore::Place& place,
                   std::uint32_t* window);
  void KeepTail(std::uint32_t stream);

  Options options_;
  std::int64_t capacity_ = 0;
  bool inline_action_ = false;
  BigArray<Entry> entry_;  // [capacity + 1], or more after Reserve
  // Ids are given out in ascending order, round and round, past those that live: frames that come
  // one after the other have entries side by side, however those before them left.
  BigArray<std::uint64_t> unused_;  // a bit an id: of [1, fresh_], those that don't live
  std::uint64_t unused_count_ = 0;  // of these
  std::uint64_t fresh_ = 0;         // ids ever given out
  std::uint64_t cursor_ = 0;        // the id to be looked at next
  SegmentStore store_;
  std::unordered_map<StreamId, std::uint32_t> index_;
  std::vector<Stream> stream_;
  std::vector<std::uint32_t> free_stream_;
  std::uint32_t oldest_ = kNoStream, newest_ = kNoStream;  // by `touched`
  std::int64_t tail_frames_ = 0;
  std::uint64_t frames_ever_ = 0;
  // Of the call.
  std::uint64_t call_ = 0;
  std::vector<ChunkView> chunks_;
  std::vector<ChunkRecord> headers_;
  std::vector<std::uint32_t> chunk_window_;  // where the frames of each chunk begin
  std::vector<std::uint32_t> touched_;       // streams looked at
  std::vector<Run> run_;
  std::vector<WindowFrame> window_;
  std::uint64_t new_frames_ = 0, new_bytes_ = 0;
};

}  // namespace troop
