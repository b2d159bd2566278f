#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/storage/huge_array.h"
#include "replay/storage/item_view.h"
#include "replay/storage/record.h"
#include "replay/storage/segment_store.h"

namespace troop {

// Stores every frame once, whatever items refer to it. A frame has an id that stays constant while
// it lives, and an entry with the position of its bytes. It lives while it is referenced: by
// items, and by its stream, whose newest frames (`history`) later items may refer to. Owner: one
// thread (a Table).
//
// An insert call is Plan, then Locate for each item, then either Abandon, which undoes everything,
// or the conditions of Write, Write, references for its items, and End.
class FrameStore {
 public:
  using FrameId = std::uint32_t;  // 0: none
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
    int history = 1;          // newest frames of each stream to keep
    std::size_t segment_bytes = std::size_t{1} << 20;
    bool checksums = false;
  };
  // A checked chunk of an insert call; the columns point into the message.
  struct ChunkView {
    StreamId stream = 0;
    std::uint64_t first_frame = 0;
    std::uint32_t frames = 0;
    std::uint32_t encoded_bytes = 0;
    ChunkColumns columns;
  };
  // Frames of an item: [begin, begin + lead + length] of the call's window.
  struct Located {
    std::uint32_t begin = 0;
    std::uint32_t lead = 0;
  };

  static Result<FrameStore> Make(const Options& options);  // kResourceExhausted
  static std::size_t Bytes(const Options& options);        // arrays, without segments

  // ---- An insert call ----

  // True if all frames were received before (and there are some). Changes nothing.
  bool HasAll(std::span<const ChunkView> chunks) const;
  // Takes up the chunks of a call. Errors: kInvalidArgument: frames received before;
  // kResourceExhausted: more than half a log. After an error: Abandon.
  Status Plan(std::span<const ChunkView> chunks);
  // Finds an item's frames; nullopt if some were evicted or lost. Errors: kInvalidArgument.
  Result<std::optional<Located>> Locate(const Item& item, int lead_asked);
  void Abandon();
  bool has_room() const { return frames() + std::int64_t(new_frames_) <= capacity_; }
  // True if an otherwise empty log has room; frames held by the call's own streams stay.
  bool fits_alone() const;
  // Drops the stream that was silent longest. False if only the call's own streams are left.
  bool ForgetSilentStream();
  bool streams_hold_much() const { return tail_frames_ > capacity_ / 4 * 3; }
  // Size of the call's record with `items` items.
  std::size_t RecordBytes(std::uint32_t items) const;
  // Appends the record and the entries of its frames. The caller fills in items and states, and
  // calls Finish. REQUIRES: has_room(), store().Prepare(RecordBytes(items)).
  RecordWriter Write(std::uint32_t items, SegmentStore::Place* place);
  FrameId Id(std::uint32_t window) const { return window_[window].id; }
  // Ids of the frames that Write stored at `place`.
  std::span<const FrameId> written(const SegmentStore::Place& place) {
    return std::span<const FrameId>(store_.frames(place.segment)).last(new_frames_);
  }
  void End();

  // ---- Frames ----

  const Entry& entry(FrameId id) const { return entry_[id]; }
  Entry& entry(FrameId id) { return entry_[id]; }
  // Adds or drops a reference to `count` frames from `id` on, along their links.
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
  // Points a frame's entry to its moved bytes.
  void Relocate(FrameId id, const SegmentStore::Place& record, const std::byte* observation,
                const std::byte* action);
  std::size_t FrameBytes(const Entry& entry) const {
    return entry.bytes + options_.layout.column_bytes();
  }

  // ---- Recovery from a log on disk ----

  struct Recovered {
    StreamId stream = 0;
    std::uint64_t frame = 0;
    SegmentStore::Index segment = 0;
    std::uint32_t place = 0;  // index in store().frames(segment)
    Entry entry;
    FrameId id = 0;
  };
  // Allocates entries for `frames` frames, even beyond the capacity: has_room() is then false
  // until enough of them left. REQUIRES: no frame was added yet. Errors: kResourceExhausted.
  Status Reserve(std::int64_t frames);
  // Adds an entry for a frame, without references. REQUIRES: room for it (Reserve).
  FrameId Adopt(const Recovered& frame);
  // Adds a stream with its newest frames, ascending and without gaps; [tail] ids. Oldest streams
  // first.
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
  // State of one stream, in a list ordered by `touched`.
  struct Stream {
    StreamId id = 0;
    std::uint64_t next_frame = 0;
    std::vector<FrameId> tail;  // [<= history], newest last
    std::uint64_t touched = 0;  // frames_ever_ when it last sent frames
    std::uint32_t older = kNoStream, newer = kNoStream;
    std::uint64_t call = 0;      // the call that last touched it
    std::uint32_t run = kNoRun;  // its newest run in that call
    bool appended = false;       // in that call
    bool created = false;        // by that call
  };
  // Consecutive frames of a stream in a call's window: its tail, then new frames.
  struct Run {
    std::uint32_t stream = 0;
    std::uint64_t first_frame = 0;
    std::uint32_t begin = 0, count = 0;
    std::uint32_t before = kNoRun;  // previous run of the stream, separated by a gap
    bool knows_start = false;       // its first frame begins an episode
  };
  struct WindowFrame {
    FrameId id = 0;             // 0: new in this call, without an id yet
    std::uint32_t episode = 0;  // window index of the episode's first known frame
    bool first = false, final = false;
  };

  FrameStore(const Options& options, HugeArray<Entry> entry, HugeArray<std::uint64_t> unused);
  FrameId Allocate();
  void Free(FrameId id);
  std::uint32_t Touch(StreamId id);  // index, noted as touched; kNoStream: unknown
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
  HugeArray<Entry> entry_;  // [capacity + 1], or more after Reserve
  // Ids are allocated in ascending order, cyclically, skipping live ones, so that frames received
  // in sequence have adjacent entries, in whatever order earlier ones left.
  HugeArray<std::uint64_t> unused_;  // one bit per id in [1, fresh_]; set if not live
  std::uint64_t unused_count_ = 0;   // number of set bits
  std::uint64_t fresh_ = 0;          // ids ever allocated
  std::uint64_t cursor_ = 0;         // next id to examine
  SegmentStore store_;
  std::unordered_map<StreamId, std::uint32_t> index_;
  std::vector<Stream> stream_;
  std::vector<std::uint32_t> free_stream_;
  std::uint32_t oldest_ = kNoStream, newest_ = kNoStream;  // by `touched`
  std::int64_t tail_frames_ = 0;
  std::uint64_t frames_ever_ = 0;
  // State of the current call.
  std::uint64_t call_ = 0;
  std::vector<ChunkView> chunks_;
  std::vector<ChunkRecord> headers_;
  std::vector<std::uint32_t> chunk_window_;  // window index of each chunk's first frame
  std::vector<std::uint32_t> touched_;       // touched streams
  std::vector<Run> run_;
  std::vector<WindowFrame> window_;
  std::uint64_t new_frames_ = 0, new_bytes_ = 0;
};

}  // namespace troop
