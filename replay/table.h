#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/history.h"
#include "core/status.h"
#include "core/trajectory.h"
#include "replay/drawn.h"
#include "replay/feed.h"
#include "replay/frame_codec.h"
#include "replay/segment.h"
#include "replay/selector.h"
#include "replay/snapshot.h"
#include "replay/view.h"

namespace troop {

// Consecutive frames of a stream, their observations encoded. The parts are slices of a message.
struct EncodedChunk {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  Buffer action;       // [frames, ...action]
  Buffer reward;       // [frames] f32
  Buffer discount;     // [frames] f32
  Buffer final;        // [frames] u8
  Buffer frame_bytes;  // [frames] u32; empty with Codec::kNone
  Buffer observation;  // encoded, one after the other
};

// Frames first, then items that look at them or at the newest earlier ones of their streams.
// Item::burn_in is what the writer asks for before first_frame for the recurrent state; the table
// takes stack - 1 + burn_in frames, or as many as the episode has. Item::state is the recurrent
// state before step first_frame - burn_in, or before the episode's first step where that is later;
// of the spec's size where the spec has one, else empty.
struct EncodedInsert {
  std::vector<EncodedChunk> chunks;
  std::vector<Item> items;
};

// Items over a log of frames, drawn by one selector and removed by another.
// Owner: one thread (a server, or a test). Knows nothing of messages, waiting, time or disks.
//
// A key is generation << 32 | slot. Slots are given out in the order in which they were freed, and
// each time with a new generation: a key names an item for ever.
// Invariants: an item's frames (lead + length + 1) are in the log as long as the item is; a frame
// is in the log once, however many items look at it, and leaves with the last of them, unless it is
// among the newest of its stream (ViewSpec::frames_max of them), which later items may look at.
// A stream that is silent while a whole log of frames comes is forgotten: late items expire.
//
// Soft capacity (Horgan et al. 2018, appendix): with trim_every_samples inserts are taken beyond
// `capacity_items`, and the excess leaves in bulk each time so many items were drawn. A hard limit
// of capacity * 9/8 bounds memory: beyond it items leave at each insert. Items also leave early, by
// the remover's choice, when the log is out of frames or bytes.
class Table {
 public:
  struct Options {
    std::string name = "experience";
    TrajectorySpec trajectory;
    ViewSpec view;
    Codec codec = Codec::kNone;
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1;  // only sizes the log: so many always fit
    Selector::Options sampler{};
    Selector::Options remover{.kind = Selector::Kind::kFifo};
    // A newcomer to a full table is taken with chance capacity / seen, in the place of an item that
    // the remover picks (uniform: Vitter 1985, algorithm R). Not with a soft capacity.
    bool reservoir = false;
    double priority_epsilon = 1e-6;
    std::int64_t max_times_sampled = 0;  // an item leaves with its last draw; 0: no limit
    // In updates of the newest version seen less those of the item's: older items are never drawn,
    // and leave at the latest when they would be. 0: no limit.
    std::uint64_t max_policy_age = 0;
    std::int64_t trim_every_samples = 0;  // 0: no soft capacity
    std::int64_t frames = 0;              // of the log; 0: derived
    std::size_t bytes_max = 0;            // of the log's segments; 0: no limit
    std::size_t segment_bytes = 0;        // 0: derived
    bool checksums = false;               // a durable table: records carry items and CRC-32C
    bool feed = false;  // ReadFeed; 16 bytes a frame and an item more. Only where items leave by
                        // their age alone: kFifo, and no limits
    History* history = nullptr;  // of items that come in, or back
    std::uint64_t seed = 1;
    std::uint64_t incarnation = 0;       // with the seed, the key of the random numbers
    std::uint32_t first_generation = 1;  // a table that follows another begins elsewhere
  };
  struct InsertCounts {
    std::int64_t inserted = 0;
    std::int64_t repeated = 0;  // the call came before: nothing was done
    std::int64_t expired = 0;   // some of their frames were gone: the stream had been silent too
                                // long, or they were lost
    std::int64_t rejected = 0;  // by the reservoir
  };
  struct UpdateCounts {
    std::int64_t applied = 0;
    std::int64_t stale = 0;    // the item is gone; its slot may hold another
    std::int64_t refused = 0;  // NaN, infinite or negative
  };
  struct RecoverCounts {
    std::int64_t records = 0, frames = 0, items = 0;
    std::int64_t segments_damaged = 0;   // some of their records are not whole
    std::int64_t items_lost = 0;         // alive, and their frames gone
    std::int64_t frames_unreadable = 0;  // their dictionary is not known
    std::size_t bytes_dropped = 0;       // of damaged records
    std::int64_t items_unfound = 0;      // in the snapshot, and in no record
    // Numbers of the items that came by a segment's insert calls, by segment: [first, end).
    struct Inserted {
      std::uint64_t segment = 0, first = 0, end = 0;
    };
    std::vector<Inserted> inserted;
  };

  static Result<Table> Make(const Options& options);  // kInvalidArgument, kResourceExhausted
  // What a full table takes: its arrays, and its log at the codec's usual ratio (LZ4: 8, zstd: 20).
  static std::size_t PredictBytes(const Options& options);
  Table(Table&&) noexcept;
  Table& operator=(Table&&) noexcept;
  ~Table();

  // All or nothing: everything is checked before anything changes; each encoded frame is decoded
  // once for that. Items leave first where room is needed. A call whose frames all came before is a
  // repeat (a writer that lost the answer sends it again): its items are in already.
  // Errors: kInvalidArgument: columns of the wrong size, frames that don't decode, that came before
  // beside new ones, rewards that are not finite, discounts outside [0, 1]; an item across an
  // episode's end or beyond the frames of its stream in this call, a length outside
  // 1 … length_max, more burn-in than the view's (with stacks: other than it), a state of another
  // size, a priority that is NaN, infinite or negative, a policy version of 2^31 updates or more.
  // kResourceExhausted: more at once than the table can hold.
  // A call of items alone can't be told from its repeat: its items would be in twice.
  Result<InsertCounts> Insert(const EncodedInsert& call);

  // Draws `batch` items with replacement. The random numbers are those of (seed, kReplaySampling,
  // incarnation, draw number). Frame pointers stay good until the next call that changes the table.
  // max_times_sampled and max_policy_age may leave fewer to draw: then out->size() < batch.
  // REQUIRES: can_draw().
  void Draw(std::int64_t batch, Drawn* out);
  bool can_draw() const;
  // Of the last Draw, [B]: items that were inserted since each drawn one.
  std::span<const std::uint64_t> drawn_age() const;

  // ---- For a copy that is drawn from in its place (Options::feed) ----

  // Items from number at.next on, the oldest first: at most items_max, and so many that their new
  // frames are about bytes_max once they are decoded. Frames that items from at.start up to at.next
  // brought are left out. Returns how far it came; `start` is later where items left before they
  // were fed. Frame pointers stay good until the next call that changes the table.
  FeedPlace ReadFeed(const FeedPlace& at, std::int64_t items_max, std::size_t bytes_max, Feed* out);
  std::uint64_t oldest_number() const;  // of the oldest item, or of the next one if there is none
  FeedSizes feed_sizes() const;
  void DrawnElsewhere(std::int64_t items);  // they count for trim_every_samples

  // |TD error| as it is. A later pair wins over an earlier one of the same key. An update of a key
  // that is gone changes nothing.
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);
  // The newest weights, for max_policy_age, from whoever makes them: from the first call on what
  // items say of themselves no longer counts, and what they said before is forgotten.
  void SeePolicyVersion(std::uint64_t version);
  // Known from now on for checking frames.
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  const Options& options() const;
  std::int64_t size() const;
  std::int64_t slots() const;
  double total() const;  // of the sampler's weights
  bool Alive(std::uint64_t key) const;
  std::uint64_t newest_policy_version() const;
  std::int64_t evicted() const;  // items that left, for whatever reason
  std::int64_t frames() const;   // in the log
  std::int64_t frame_capacity() const;
  std::int64_t streams() const;
  std::size_t bytes() const;              // of arrays and segments
  std::size_t segment_bytes() const;      // of segments: memory
  std::size_t used_bytes() const;         // of segments: records
  std::size_t live_bytes() const;         // of these: what live frames and items take
  std::uint64_t compacted_bytes() const;  // moved so far

  // ---- For a journal: the log as bytes, and what is not in the log ----

  std::vector<std::shared_ptr<const Segment>> segments() const;  // by id; the last one is open
  std::uint64_t appended() const;                                // bytes of records so far
  LogPosition position() const;  // where the next record goes, or just before
  // Ids of segments that became empty since the last call. Their files are needed until what was
  // moved out of them is durable.
  std::vector<std::uint64_t> TakeFreed();
  // Segment::MoveTo. False: no such segment, or it is not sealed or of another size.
  bool MoveSegment(std::uint64_t id, Buffer bytes);

  std::int64_t lines() const;
  std::int64_t dirty_lines() const;
  std::int64_t TakeDirtyLine();  // round robin; -1: none
  void ReadLine(std::int64_t line, SlotLine* out) const;
  TableCounters counters() const;

  // A table out of what was on disk, as Snapshot says. `segments`: sealed, by id. Draws go on as
  // they would have after an orderly end, but for kUniform, whose order is not kept. Any bytes are
  // survived: what is damaged costs what it holds, and is counted; so do frames whose dictionary
  // is not among these.
  static Result<Table> Recover(
      const Options& options, std::vector<std::shared_ptr<Segment>> segments,
      const Snapshot& snapshot, RecoverCounts* counts,
      std::span<const std::shared_ptr<const FrameDictionary>> dictionaries = {});

 private:
  struct State;
  explicit Table(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troop
