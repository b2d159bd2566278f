#pragma once

// What is behind Table, for its own files alone: table.cc (options, inserts, updates),
// table_draw.cc, table_feed.cc, table_compact.cc, table_recover.cc.

#include <deque>
#include <memory>
#include <vector>

#include "core/rng.h"
#include "replay/big_array.h"
#include "replay/frame_codec.h"
#include "replay/frame_log.h"
#include "replay/selector.h"
#include "replay/table.h"

namespace troop {

inline constexpr std::int64_t kItemsMax = std::int64_t{1} << 29;

struct Table::State {
  using Slot = Selector::Slot;
  using FrameId = FrameLog::FrameId;
  // What draws and updates read; half a cache line.
  struct Stored {
    FrameId first = 0;             // its earliest frame: of the lead, if it has one
    std::uint32_t generation = 0;  // of an empty slot: of the last that was in it; 0: none ever
    std::uint64_t policy_version = 0;
    std::uint64_t number = 0;  // in the order of insertion
    std::uint16_t length = 0;  // 0: the slot is empty
    std::uint16_t lead = 0;
    float priority = 0;  // as the selectors have it
    std::uint32_t frames() const { return std::uint32_t{lead} + length + 1; }
  };
  static_assert(sizeof(Stored) == 32);
  struct Cold {
    std::uint32_t times_sampled = 0;                    // counted where there is a limit
    SegmentStore::Index segment = SegmentStore::kNone;  // of its record; kNone: it has none
    std::uint32_t state = 0;                            // offset of its recurrent state
    std::uint32_t recovered = 0;  // its generation is not of this table's own numbers
  };
  static_assert(sizeof(Cold) == 16);
  // Of a frame: the first item that looked at it, and the last feed that it was in.
  struct Fed {
    std::uint64_t first_item = ~std::uint64_t{0};
    std::uint64_t in_feed = 0;
  };
  struct Arrival {
    std::uint64_t number = 0, key = 0;
  };
  struct Planned {
    FrameLog::Located at;
    std::uint32_t item = 0;  // of the call
  };
  struct Parts {
    FrameLog log;
    std::unique_ptr<Selector> sampler, remover;
    BigArray<Stored> item;
    BigArray<Cold> cold;
    BigArray<Slot> freed;
  };
  struct Moves;     // table_compact.cc
  struct Recovery;  // table_recover.cc

  State(const Options& options, Parts parts);
  static Result<std::unique_ptr<State>> Make(const Options& options);
  static FrameLog::Options LogOptions(const Options& options);
  static std::int64_t HardLimit(const Options& options);

  // ---- Inserts ----
  Result<InsertCounts> Insert(const EncodedInsert& call);
  Status ViewChunks(std::span<const EncodedChunk> chunks);  // sizes alone; fills `view_`
  Status CheckFrames(const FrameLog::ChunkView& chunk);     // what is in them
  Status PlanItems(std::span<const Item> items, InsertCounts* counts);
  Status CheckItem(const Item& item) const;
  Status MakeRoom(std::int64_t slots_needed);
  Status ReduceToBytes();
  void ChooseNewcomers(InsertCounts* counts);
  void AddItems(std::span<const Item> items);
  void Tell(HistoryEvent::What what, const Item& item) const;
  Slot AddItem(const Planned& planned, const Item& item, std::uint32_t index,
               const SegmentStore::Place& place, RecordWriter* writer);
  Slot TakeSlot();

  // ---- Items that leave ----
  void Evict(std::int64_t count);
  void RemoveNow(std::span<const Slot> leavers);  // from both selectors too; each slot once
  void FreeSlot(Slot leaver);
  void ReleaseHeld();
  void TrimToCapacity();

  // ---- Draws ----
  void Draw(std::int64_t batch, Drawn* out);
  void DropTooOld();
  void TrimOrder();
  bool TooOld(const Stored& stored) const;
  void ChooseAmongDrawable(Rng* rng, double total, std::vector<double>* probability);
  void Gather(Drawn* out);
  void GatherItem(const Stored& stored, std::size_t i, Drawn* out, std::size_t* frames);
  void TouchItems(std::size_t begin, std::size_t end);
  void TouchEntries(std::size_t begin, std::size_t end);
  void CopyActions(Drawn* out) const;
  void LeaveAfterDraw();
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);

  // ---- Feeds (table_feed.cc); with options.feed alone ----
  void NoteNewFrames(std::span<const FrameId> ids);
  void NoteArrival(Slot slot);
  std::uint64_t OldestNumber();
  std::size_t FeedFrame(FrameId id, Feed* out);
  FeedPlace ReadFeed(FeedPlace at, std::int64_t items_max, std::size_t bytes_max, Feed* out);
  void DrawnElsewhere(std::int64_t items);

  // ---- Compaction ----
  // Moves what lives out of the emptiest segments while too much is dead, at most about `budget`
  // bytes. Without memory for a new segment, or beyond bytes_max, it does nothing.
  // `tight`: bytes are short, so less is too much.
  void Compact(std::size_t budget, bool tight = false);
  bool WastesMuch(bool tight) const;
  void CollectMoves(const Record& record, Moves* moves);
  bool WriteMoves(const Moves& moves);

  bool Lives(const Stored& stored) const { return stored.length != 0; }
  void MarkDirty(Slot changed) {
    if (!options.checksums) return;
    const std::size_t line = changed / kSlotsPerLine;
    dirty[line / 64] |= std::uint64_t{1} << (line % 64);
  }
  float Effective(float raw) const;  // with ε

  Options options;
  RecordLayout layout;
  bool item_records = false;  // records carry items
  FrameLog log;
  std::unique_ptr<Selector> sampler, remover;
  bool remover_reads_priority = false;
  BigArray<Stored> item;  // [slots]
  BigArray<Cold> cold;    // [slots]
  BigArray<Slot> freed;   // ring of empty slots in the order in which they were freed
  std::uint64_t freed_head = 0, freed_count = 0;
  std::uint32_t fresh = 0;  // slots ever given out; with a recovered table: all
  std::int64_t slots = 0, size = 0, evicted = 0;
  std::uint64_t inserted = 0, draws = 0, seen = 0, newest_version = 0, samples_since_trim = 0;
  std::uint64_t compacted = 0;
  bool version_told = false;  // newest_version comes from SeePolicyVersion
  Rng remover_rng;
  FrameCoder coder;
  std::vector<std::byte> decoded;    // [frame_bytes] scratch
  std::deque<std::uint64_t> order;   // keys in the order of insertion; with max_policy_age alone
  std::deque<Arrival> arrivals;      // in the order of insertion; with options.feed alone
  std::vector<Fed> fed;              // [frames] by id; the same
  std::uint64_t feeds = 0;           // read so far
  std::vector<std::uint64_t> dirty;  // a bit a line
  std::uint64_t dirty_cursor = 0;    // line
  // Frames of the last draw's items, where some of these left with it.
  struct Held {
    FrameId first;
    std::uint32_t count;
  };
  std::vector<Held> held;
  SegmentStore::Index victim = SegmentStore::kNone;  // being compacted
  std::uint64_t victim_id = 0;
  std::size_t victim_offset = 0, victim_frame = 0;
  // Scratch of one call, kept to save allocations.
  std::vector<FrameLog::ChunkView> view;
  std::vector<Planned> planned;
  std::vector<Slot> chosen;
  std::vector<Slot> leaving;
  std::vector<float> priority;
  std::vector<std::uint64_t> age;
  std::vector<const std::byte*> action;
  std::uint32_t touched = 0;  // of what was read ahead; nobody asks
  Record record;
  std::size_t record_bytes = 0;  // of the call's
};

}  // namespace troop
