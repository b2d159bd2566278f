#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/event_history.h"
#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/frame_codec.h"
#include "replay/codec/table_delta.h"
#include "replay/selectors/selector.h"
#include "replay/storage/item_view.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"

namespace troop {

// Consecutive frames of one stream with encoded observations. The columns are slices of a message.
struct EncodedChunk {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  Buffer action;       // [frames, ...action]
  Buffer reward;       // [frames] f32
  Buffer discount;     // [frames] f32
  Buffer final;        // [frames] u8
  Buffer frame_bytes;  // [frames] u32; empty with Codec::kNone
  Buffer observation;  // encoded frames, concatenated
};

// One insert call: the frames, then items that refer to them or to earlier frames of their
// streams. Item::burn_in is the number of frames before first_frame that the writer requests for
// the recurrent state. The table takes stack - 1 + burn_in lead frames, or as many as the episode
// has. Item::state is the recurrent state before step first_frame - burn_in, or before the
// episode's first step if that is later. It has the spec's size if the spec has a state, else it
// is empty.
struct EncodedInsert {
  std::vector<EncodedChunk> chunks;
  std::vector<Item> items;
};

// A replay table: items over a log of frames, with one selector that samples and one that evicts.
// Owner: one thread (a server, or a test). Has no notion of messages, waiting, time or disks.
//
// A key is generation << 32 | slot. Slots are reused in the order in which they were freed, each
// time with a new generation, so a key identifies one item forever.
//
// Invariants:
//   - An item's frames (lead + length + 1) stay in the log as long as the item does.
//   - A frame is stored once, however many items refer to it. It leaves with the last of them, but
//     the newest ViewSpec::frames_max of each stream stay: later items may refer to them.
//   - A stream that is silent while a whole log of frames arrives is dropped; late items expire.
//
// Soft capacity (Horgan et al. 2018, appendix): with trim_every_samples, inserts are accepted
// beyond `capacity_items`, and the excess is evicted in bulk each time that number of items was
// sampled. A hard limit of capacity * 9/8 bounds memory; beyond it each insert evicts items. Items
// are also evicted early, by the remover's choice, when the log runs out of frames or bytes.
class Table {
 public:
  struct Options {
    std::string name = "experience";
    TrajectorySpec trajectory;
    ViewSpec view;
    Codec codec = Codec::kNone;
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1;  // only sizes the log, which always holds this many
    Selector::Options sampler{};
    Selector::Options remover{.kind = Selector::Kind::kFifo};
    // A new item is accepted into a full table with probability capacity / seen and replaces an
    // item that the remover picks (with kUniform: Vitter 1985, algorithm R). Excludes a soft
    // capacity.
    bool reservoir = false;
    double priority_epsilon = 1e-6;
    std::int64_t max_times_sampled = 0;  // evicted after this many samples; 0: no limit
    // Maximum age in updates relative to the newest policy version seen. Older items are never
    // sampled and are evicted at the latest when one would be. 0: no limit.
    std::uint64_t max_policy_age = 0;
    std::int64_t trim_every_samples = 0;  // 0: no soft capacity
    std::int64_t frames = 0;              // log capacity; 0: derived
    std::size_t bytes_max = 0;            // limit for the log's segments; 0: no limit
    std::size_t segment_bytes = 0;        // 0: derived
    bool checksums = false;               // durable table: records hold items and a CRC-32C
    // Enables ReadDelta, for 16 more bytes per frame and per item. Requires items to be evicted by
    // age alone: remover kFifo and no limits.
    bool feed = false;
    EventHistory* history = nullptr;  // records inserted and restored items
    std::uint64_t seed = 1;
    std::uint64_t incarnation = 0;       // with the seed, keys the random numbers
    std::uint32_t first_generation = 1;  // differs from that of a predecessor
  };
  // Outcome of one insert, in items.
  struct InsertCounts {
    std::int64_t inserted = 0;
    std::int64_t repeated = 0;  // the call is a repeat and had no effect
    std::int64_t expired = 0;   // frames missing: evicted (stream silent too long), or lost
    std::int64_t rejected = 0;  // not chosen by the reservoir
  };
  // Outcome of one priority update, in pairs of key and priority.
  struct UpdateCounts {
    std::int64_t applied = 0;
    std::int64_t stale = 0;    // the item was evicted; its slot may hold another
    std::int64_t refused = 0;  // NaN, infinite or negative
  };
  // Outcome of Recover.
  struct RecoverCounts {
    std::int64_t records = 0, frames = 0, items = 0;
    std::int64_t segments_damaged = 0;   // segments with incomplete or corrupt records
    std::int64_t items_lost = 0;         // live items whose frames are missing
    std::int64_t frames_unreadable = 0;  // frames whose dictionary is unknown
    std::size_t bytes_dropped = 0;       // bytes of damaged records
    std::int64_t items_unfound = 0;      // items in the snapshot but in no record
    // Numbers of the items that each segment's insert calls added: [first, end).
    struct Inserted {
      std::uint64_t segment = 0, first = 0, end = 0;
    };
    std::vector<Inserted> inserted;
  };

  // Creates an empty table. Errors: kInvalidArgument, kResourceExhausted.
  static Result<Table> Make(const Options& options);
  // Memory of a full table: arrays, and the log at the codec's usual ratio (LZ4: 8, zstd: 20).
  static std::size_t PredictBytes(const Options& options);
  Table(Table&&) noexcept;
  Table& operator=(Table&&) noexcept;
  ~Table();

  // Inserts frames and items, all or nothing: the call is checked before any change, which decodes
  // each encoded frame once. Items are evicted first if room is needed. A call whose frames were
  // all received before is a repeat (a writer that lost the reply resends it): its items are in
  // the table already. Errors:
  //   kInvalidArgument: columns of the wrong size; frames that do not decode; repeated frames next
  //     to new ones; non-finite rewards; discounts outside [0, 1]; an item that crosses an
  //     episode's end or exceeds the frames of its stream in this call; a length outside 1 …
  //     length_max; burn-in above the view's (with stacks: unequal to it); a state of the wrong
  //     size; a priority that is NaN, infinite or negative; a policy version of 2^31 updates or
  //     more.
  //   kResourceExhausted: the call exceeds what the table can hold.
  // A call without frames cannot be recognized as a repeat: its items would be inserted twice.
  Result<InsertCounts> Insert(const EncodedInsert& call);

  // Samples `batch` items with replacement. The random numbers are keyed by (seed,
  // kReplaySampling, incarnation, draw number). Frame pointers are valid until the next call that
  // changes the table. With max_times_sampled or max_policy_age fewer items may remain: then
  // out->size() < batch.
  void Draw(std::int64_t batch, EncodedBatch* out);
  bool can_draw() const;
  // [B] For the last Draw: the number of items inserted since each sampled one.
  std::span<const std::uint64_t> drawn_age() const;

  // ---- For a replica that is sampled instead of this table (Options::feed) ----

  // Reads a table delta: items from number at.next on, oldest first, at most items_max, until
  // their new frames reach about bytes_max when decoded. Frames that items in [at.start, at.next)
  // referred to are left out. Returns how far it read; `start` increases if items were evicted
  // before they were read. Frame pointers are valid until the next call that changes the table.
  DeltaCursor ReadDelta(const DeltaCursor& at, std::int64_t items_max, std::size_t bytes_max,
                        TableDelta* out);
  std::uint64_t oldest_number() const;  // of the oldest item; of the next one if empty
  ReplicaSizes replica_sizes() const;
  void CountReplicaSamples(
      std::int64_t items);  // samples of the replica; counted for trim_every_samples

  // Sets priorities to |TD error| (before ε is added). Of several pairs with one key the last
  // counts. A key of an evicted item has no effect.
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);
  // Sets the newest policy version, for max_policy_age. From the first call on, the versions of
  // inserted items no longer raise it, and the maximum that they had reached is discarded.
  void ObservePolicyVersion(std::uint64_t version);
  // Adds a dictionary for checking frames.
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  const Options& options() const;
  std::int64_t size() const;
  std::int64_t slots() const;
  double total() const;  // sum of the sampler's weights
  bool Alive(std::uint64_t key) const;
  std::uint64_t newest_policy_version() const;
  std::int64_t evicted() const;  // all evicted items, for any reason
  std::int64_t frames() const;   // in the log
  std::int64_t frame_capacity() const;
  std::int64_t streams() const;
  std::size_t bytes() const;              // arrays and segments
  std::size_t segment_bytes() const;      // memory of the segments
  std::size_t used_bytes() const;         // of it: records
  std::size_t live_bytes() const;         // of those: live frames and items
  std::uint64_t compacted_bytes() const;  // moved by compaction so far

  // ---- For a journal: the log as bytes, and the state outside the log ----

  std::vector<std::shared_ptr<const Segment>> segments() const;  // by id; the last is open
  std::uint64_t appended() const;                                // total bytes of records
  LogPosition position() const;                                  // end of the last record
  // Ids of segments that became empty since the last call. Their files are needed until the
  // records that were moved out of them are durable.
  std::vector<std::uint64_t> TakeFreed();
  // Segment::MoveTo. False if there is no such segment, or it is unsealed or of another size.
  bool MoveSegment(std::uint64_t id, Buffer bytes);

  // Slot lines for snapshots (kSlotsPerLine slots each); a line is dirty if it changed since it
  // was taken.
  std::int64_t lines() const;
  std::int64_t dirty_lines() const;
  std::int64_t TakeDirtyLine();  // round robin; -1: none
  void ReadLine(std::int64_t line, SlotLine* out) const;
  TableCounters counters() const;

  // Rebuilds a table from its log and snapshot (see Snapshot). `segments`: sealed, ordered by id.
  // After a clean shutdown, samples continue as if without interruption, except with kUniform,
  // whose item order is not kept. Tolerates arbitrary bytes: damaged records lose their content,
  // which is counted, and so do frames whose dictionary is not in `dictionaries`.
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
