#pragma once

// Implementation of Table, included only by table.cc (options, updates), insert.cc,
// sample.cc, table_deltas.cc, compaction.cc and recover.cc.

#include <deque>
#include <memory>
#include <vector>

#include "core/base/philox.h"
#include "replay/codec/frame_codec.h"
#include "replay/selectors/selector.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/huge_array.h"
#include "replay/storage/insert_window.h"
#include "replay/storage/stream_list.h"
#include "replay/table/table.h"

namespace troop {

inline constexpr std::int64_t kItemsMax = std::int64_t{1} << 29;  // below kSelectorSlotsMax

struct Table::State {
  using Slot = Selector::Slot;
  using FrameId = FrameLog::FrameId;
  // The part of an item that sampling and updates read; half a cache line.
  struct Stored {
    FrameId first = 0;             // earliest frame, lead included
    std::uint32_t generation = 0;  // generation of the current or last item; 0: never used
    std::uint64_t policy_version = 0;
    std::uint64_t number = 0;  // in the order of insertion
    std::uint16_t length = 0;  // 0: the slot is empty
    std::uint16_t lead = 0;
    float priority = 0;  // as the selectors store it (ε added)
    std::uint32_t frames() const { return std::uint32_t{lead} + length + 1; }
  };
  static_assert(sizeof(Stored) == 32);
  // The part of an item that is read rarely.
  struct Cold {
    std::uint32_t times_sampled = 0;  // counted only with max_times_sampled
    SegmentStore::Index segment =
        SegmentStore::kNone;      // segment of the item's record; kNone: no record
    std::uint32_t state = 0;      // offset of the recurrent state in the segment
    std::uint32_t recovered = 0;  // 1: the generation predates this process
  };
  static_assert(sizeof(Cold) == 16);
  // Per frame: the first item that refers to it, and the last table delta that contained it.
  struct FrameDeltaState {
    std::uint64_t first_item = ~std::uint64_t{0};
    std::uint64_t in_feed = 0;
  };
  // An item in insertion order, for table deltas.
  struct Arrival {
    std::uint64_t number = 0, key = 0;
  };
  // An item of the call that passed all checks.
  struct Planned {
    InsertWindow::Located at;
    std::uint32_t item = 0;  // index in the call
  };
  // Allocations that can fail, made before the constructor runs.
  struct Parts {
    FrameLog log;
    std::unique_ptr<Selector> sampler, remover;
    HugeArray<Stored> item;
    HugeArray<Cold> cold;
    HugeArray<Slot> freed;
  };
  struct Moves;     // compaction.cc
  struct Recovery;  // recover.cc

  State(const Options& options, Parts parts);
  static Result<std::unique_ptr<State>> Make(const Options& options);
  static FrameLog::Options LogOptions(const Options& options);
  static std::int64_t HardLimit(const Options& options);

  // Implementation of Table::Insert.
  Result<InsertCounts> Insert(const EncodedInsert& call);
  Status ViewChunks(std::span<const EncodedChunk> chunks);   // checks sizes only; fills `view`
  Status CheckFrames(const InsertWindow::ChunkView& chunk);  // checks their content
  Status PlanItems(std::span<const Item> items, InsertCounts* counts);
  Status CheckItem(const Item& item) const;
  Status MakeRoom(std::int64_t slots_needed);
  Status ReduceToBytes();
  void SampleReservoir(InsertCounts* counts);
  void AddItems(std::span<const Item> items);
  void RecordEvent(HistoryEvent::What what, const Item& item) const;
  Slot AddItem(const Planned& planned, const Item& item, std::uint32_t index,
               const SegmentStore::Place& place, RecordWriter* writer);
  Slot TakeSlot();

  // ---- Eviction ----
  void Evict(std::int64_t count);
  void RemoveNow(std::span<const Slot> leavers);  // also from both selectors; each slot once
  void FreeSlot(Slot leaver);
  void ReleaseHeld();
  void TrimToCapacity();

  // ---- Sampling ----
  void Draw(std::int64_t batch, EncodedBatch* out);
  void EvictStaleItems();
  void TrimOrder();
  bool IsStale(const Stored& stored) const;
  void ChooseAmongDrawable(Rng* rng, double total, std::vector<double>* probability);
  void Gather(EncodedBatch* out);
  void GatherItem(const Stored& stored, std::size_t i, EncodedBatch* out, std::size_t* frames);
  void TouchItems(std::size_t begin, std::size_t end);
  void TouchEntries(std::size_t begin, std::size_t end);
  void CopyActions(EncodedBatch* out) const;
  void EvictAfterSample();
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);

  // ---- Table deltas (table_deltas.cc); only with options.feed ----
  void NoteNewFrames(std::span<const FrameId> ids);
  void NoteArrival(Slot slot);
  std::uint64_t OldestNumber();
  std::size_t AppendFrameToDelta(FrameId id, TableDelta* out);
  DeltaCursor ReadDelta(DeltaCursor at, std::int64_t items_max, std::size_t bytes_max,
                        TableDelta* out);
  void CountReplicaSamples(std::int64_t items);

  // ---- Compaction ----
  // Moves live records out of the emptiest segments while too much is dead, at most about `budget`
  // bytes. Does nothing without memory for a new segment or beyond bytes_max. `tight`: bytes are
  // short, so the threshold for dead bytes is lower.
  void Compact(std::size_t budget, bool tight = false);
  bool WastesMuch(bool tight) const;
  void CollectMoves(const Record& record, Moves* moves);
  bool WriteMoves(const Moves& moves);

  bool IsLive(const Stored& stored) const { return stored.length != 0; }
  void MarkDirty(Slot changed) {
    if (!options.checksums) return;
    const std::size_t line = changed / kSlotsPerLine;
    dirty[line / 64] |= std::uint64_t{1} << (line % 64);
  }
  float Effective(float raw) const;  // priority + ε

  Options options;
  RecordLayout layout;
  bool item_records = false;  // records hold items
  FrameLog log;
  StreamList streams;   // with their tails in `log`
  InsertWindow window;  // of the current call
  std::unique_ptr<Selector> sampler, remover;
  bool remover_reads_priority = false;
  HugeArray<Stored> item;  // [slots]
  HugeArray<Cold> cold;    // [slots]
  HugeArray<Slot> freed;   // ring of empty slots in the order in which they were freed
  std::uint64_t freed_head = 0, freed_count = 0;
  std::uint32_t fresh = 0;  // slots ever used; all of them after Recover
  std::int64_t slots = 0, size = 0, evicted = 0;
  std::uint64_t inserted = 0, draws = 0, seen = 0, newest_version = 0, samples_since_trim = 0;
  std::uint64_t compacted = 0;
  bool version_told = false;  // newest_version was set by ObservePolicyVersion
  Rng remover_rng;
  FrameCoder coder;
  std::vector<std::byte> decoded;    // [frame_bytes] scratch
  std::deque<std::uint64_t> order;   // keys in insertion order; only with max_policy_age
  std::deque<Arrival> arrivals;      // in insertion order; only with options.feed
  std::vector<FrameDeltaState> fed;  // [frames] by id; only with options.feed
  std::uint64_t feeds = 0;           // table deltas read so far
  std::vector<std::uint64_t> dirty;  // one bit per line
  std::uint64_t dirty_cursor = 0;    // line
  // Frames of the last draw whose items may have left with it; pinned until the next call.
  struct Held {
    FrameId first;
    std::uint32_t count;
  };
  std::vector<Held> held;
  SegmentStore::Index victim = SegmentStore::kNone;  // the segment being compacted
  std::uint64_t victim_id = 0;
  std::size_t victim_offset = 0, victim_frame = 0;
  // Scratch of one call, kept to avoid allocations.
  std::vector<InsertWindow::ChunkView> view;
  std::vector<Planned> planned;
  std::vector<Slot> chosen;
  std::vector<Slot> leaving;
  std::vector<float> priority;
  std::vector<std::uint64_t> age;
  std::vector<const std::byte*> action;
  std::uint32_t touched = 0;  // result of read-ahead loops, so that they are not optimized away
  Record record;
  std::size_t record_bytes = 0;  // bytes of the call's record
};

}  // namespace troop
