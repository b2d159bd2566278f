// Table::Recover: rebuilds a table from the segments of its log and its last snapshot.
#include <algorithm>
#include <cfloat>
#include <unordered_map>

#include "core/base/check.h"
#include "core/base/phase_progress.h"
#include "replay/table/table.h"
#include "replay/table/table_parts.h"

namespace troop {
namespace {

// A frame in the log; `id` 0: without an entry in the table.
struct FoundFrame {
  StreamId stream = 0;
  std::uint64_t frame = 0;
  std::uint32_t place = 0;  // index in SegmentStore::frames
  FrameLog::Entry entry;
  FrameLog::FrameId id = 0;
};

// The last record of an item in the log.
struct FoundItem {
  ItemRecord written;
  LogPosition position;
  SegmentStore::Index segment = SegmentStore::kNone;
  std::uint32_t state = 0;  // offset
  std::uint32_t first = 0;  // first frame, as an index in the order of (stream, frame)
};

// Reads a log and adds its live content to a table.
//   1. Read all records in order, and note frames and items.
//   2. Decide by the snapshot whether the newest item of each slot is live or evicted.
//   3. Sort the frames, drop copies, and look up the frames of each live item.
//   4. Allocate entries for frames of items and, if there is room, for those of the latest active
//      streams; then add streams and items.
struct LogRecovery {
  TableParts* table;
  const Snapshot& snapshot;
  RecoverCounts* counts;
  std::vector<FoundFrame> frame;
  std::vector<std::uint32_t> episode;  // [frame] index of the episode's first known frame
  std::vector<FoundItem> found;
  std::vector<std::uint32_t> newest;                       // [slots] 1 + index in `found`; 0: none
  std::unordered_map<StreamId, std::uint64_t> last_heard;  // stream -> order of its last chunk
  // The newest frames of a stream: [begin, end) of `frame`.
  struct Tail {
    std::uint64_t heard;
    std::size_t begin, end;
  };
  std::vector<Tail> tails;  // ordered by activity, latest last
  std::uint64_t chunks_read = 0;
  std::uint32_t generation_max = 0;
  std::uint64_t inserted = 0;

  void ReadSegment(const std::shared_ptr<Segment>& segment);
  std::size_t NextRecord(std::span<const std::byte> bytes, std::size_t damaged) const;
  void NoteChunk(const Record::ChunkAt& chunk, SegmentStore::Index segment, const std::byte* base);
  void NoteItems(const Record& record, SegmentStore::Index segment, LogPosition position,
                 const std::byte* base);
  void NoteNumbers(const Record& record, std::uint64_t segment);
  void CountUnfound();
  bool Readable(std::span<const std::byte> encoded) const;
  bool SaneItem(const ItemRecord& item) const;
  void SortFrames();
  bool Settle(FoundItem* item);
  bool FindFrames(FoundItem* item);
  void AddItems(const std::vector<FoundItem>& alive);
  bool Gone(const FoundItem& item) const;
  std::vector<FoundItem> FindAlive();
  void FindTails();
  Status AdoptFrames(const std::vector<FoundItem>& alive);
  void AdoptStreams();
  void RestoreCounters();
};

// ---- 1. Records ---------------------------------------------------------------------------------

// Notes all complete records of a segment, and skips damaged ranges.
void LogRecovery::ReadSegment(const std::shared_ptr<Segment>& segment) {
  const SegmentStore::Index index = table->log.store().Adopt(segment);
  // Offsets are 32 bits, so later bytes were not written by this program.
  const std::span<const std::byte> bytes(segment->data(),
                                         std::min<std::size_t>(segment->used(), ~std::uint32_t{0}));
  std::size_t offset = 0;
  bool damaged = false;
  Record record;
  while (offset < bytes.size()) {
    if (!ReadRecord(bytes.subspan(offset), table->log.layout(), table->options.checksums, &record)
             .ok()) {
      const std::size_t next = NextRecord(bytes, offset);
      // A damaged range: continue at the next complete record.
      counts->bytes_dropped += next - offset;
      damaged = true;
      if (next == bytes.size()) break;
      table->log.store().AddHole(index, offset, next);
      offset = next;
      continue;
    }
    ++counts->records;
    for (const Record::ChunkAt& chunk : record.chunks) NoteChunk(chunk, index, bytes.data());
    NoteItems(record, index, {segment->id(), offset}, bytes.data());
    if (record.kind == RecordHeader::kInsert) NoteNumbers(record, segment->id());
    offset += record.bytes;
  }
  counts->segments_damaged += damaged;
  table->log.store().SetReadable(index, offset);
}

// Offset of the first complete record after a damaged one; the size if there is none.
std::size_t LogRecovery::NextRecord(std::span<const std::byte> bytes, std::size_t damaged) const {
  if (!table->options.checksums)
    return bytes.size();  // without checksums chance matches are indistinguishable
  Record record;
  for (std::size_t at = damaged + 8; at < bytes.size(); at += 8) {
    if (ReadRecord(bytes.subspan(at), table->log.layout(), true, &record).ok()) return at;
  }
  return bytes.size();
}

// Notes the frames of a chunk. Unreadable ones keep their place in the segment's frame list, as id
// 0.
void LogRecovery::NoteChunk(const Record::ChunkAt& chunk, SegmentStore::Index segment,
                            const std::byte* base) {
  const RecordLayout& layout = table->log.layout();
  std::vector<std::uint32_t>& ids = table->log.store().frames(segment);
  auto offset = std::uint32_t(chunk.columns.observation - base);
  for (std::uint32_t i = 0; i < chunk.header.frames; ++i) {
    // Every frame of the record gets a place in the list, also unreadable ones.
    const FoundFrame noted{.stream = chunk.header.stream,
                           .frame = chunk.header.first_frame + i,
                           .place = std::uint32_t(ids.size()),
                           .entry = table->log.Describe(chunk.columns, i, segment, &offset)};
    ids.push_back(0);
    if (Readable({base + noted.entry.offset, noted.entry.bytes})) {
      frame.push_back(noted);
    } else {
      ++counts->frames_unreadable;
    }
  }
  table->log.store().AddFull(
      segment, chunk.header.encoded_bytes + chunk.header.frames * layout.column_bytes());
  last_heard[chunk.header.stream] = ++chunks_read;
}

// True if the frame's dictionary is known. Damage inside a frame was excluded by the checksum.
bool LogRecovery::Readable(std::span<const std::byte> encoded) const {
  if (!table->log.layout().has_codec) return true;
  const std::uint32_t dictionary = NeedsDictionary(encoded);
  return dictionary == 0 || table->inserter.checker().Knows(dictionary);
}

// Range checks: a record with a valid checksum may be of another program, or crafted.
bool LogRecovery::SaneItem(const ItemRecord& i) const {
  const ViewSpec& view = table->options.view;
  return i.slot < newest.size() && i.generation != 0 && i.length >= 1 &&
         i.length <= std::uint32_t(view.length_max) && i.lead <= std::uint32_t(view.lead_max()) &&
         i.lead <= i.first_frame && i.first_frame < (std::uint64_t{1} << 63) && i.priority >= 0 &&
         i.priority <= FLT_MAX;
}

// Keeps the newest item of each slot.
void LogRecovery::NoteItems(const Record& record, SegmentStore::Index segment, LogPosition position,
                            const std::byte* base) {
  for (std::uint32_t i = 0; i < record.items; ++i) {
    FoundItem item{.written = record.ItemAt(i), .position = position, .segment = segment};
    if (!SaneItem(item.written)) continue;
    item.state = std::uint32_t(record.state + i * table->log.layout().state_bytes - base);
    generation_max = std::max(generation_max, item.written.generation);
    inserted = std::max(inserted, item.written.number + 1);
    table->log.store().AddFull(segment, table->log.layout().item_bytes());
    std::uint32_t& known = newest[item.written.slot];
    if (known == 0) {
      found.push_back(item);
      known = std::uint32_t(found.size());
      continue;
    }
    // Numbers grow with time; for records of one item the later one counts.
    FoundItem& before = found[known - 1];
    if (item.written.number >= before.written.number) before = item;
  }
}

// Notes the numbers of items inserted per segment, to estimate what lost segments held.
void LogRecovery::NoteNumbers(const Record& record, std::uint64_t segment) {
  for (std::uint32_t i = 0; i < record.items; ++i) {
    const std::uint64_t number = record.ItemAt(i).number;
    if (counts->inserted.empty() || counts->inserted.back().segment != segment) {
      counts->inserted.push_back({segment, number, number});
    }
    RecoverCounts::Inserted& numbers = counts->inserted.back();
    numbers.first = std::min(numbers.first, number);
    numbers.end = std::max(numbers.end, number + 1);
  }
}

// ---- 2. Live items ------------------------------------------------------------------------------

// Applies the snapshot to an item; false if it was evicted (see Snapshot for the cases).
bool LogRecovery::Settle(FoundItem* item) {
  const std::size_t line = item->written.slot / kSlotsPerLine;
  if (line >= snapshot.lines.size()) return true;
  const Snapshot::Line& read = snapshot.lines[line];
  if (item->position >= read.read_at) return true;  // the record is newer than the line
  const SlotState& slot = read.slot[item->written.slot % kSlotsPerLine];
  if (slot.generation != item->written.generation) return false;
  if (slot.priority >= 0 && slot.priority <= FLT_MAX) item->written.priority = slot.priority;
  item->written.times_sampled = slot.times_sampled;
  return true;
}

// Counts items of the snapshot that no record has: they were in lost segments.
void LogRecovery::CountUnfound() {
  for (std::size_t line = 0; line < snapshot.lines.size(); ++line) {
    const Snapshot::Line& read = snapshot.lines[line];
    for (std::size_t i = 0; i < read.slot.size(); ++i) {
      const std::size_t slot = line * kSlotsPerLine + i;
      if (read.slot[i].generation == 0 || slot >= newest.size()) continue;
      const FoundItem* const item = newest[slot] == 0 ? nullptr : &found[newest[slot] - 1];
      counts->items_unfound +=
          item == nullptr ||
          (item->written.generation != read.slot[i].generation && item->position < read.read_at);
    }
  }
}

// True if the item has reached max_times_sampled, by the current options.
bool LogRecovery::Gone(const FoundItem& item) const {
  const std::int64_t limit = table->options.max_times_sampled;
  return limit > 0 && std::int64_t(item.written.times_sampled) >= limit;
}

// Live items in insertion order. An item is lost if its slot or its frames no longer exist.
std::vector<FoundItem> LogRecovery::FindAlive() {
  std::vector<FoundItem> alive;
  for (FoundItem& item : found) {
    if (!Settle(&item) || Gone(item)) continue;
    if (std::int64_t(item.written.slot) < table->slots.capacity() && FindFrames(&item)) {
      alive.push_back(item);
    } else {
      ++counts->items_lost;
    }
  }
  std::ranges::sort(alive, {}, [](const FoundItem& item) { return item.written.number; });
  return alive;
}

// ---- 3. Frames of items -------------------------------------------------------------------------

// Sorts frames by (stream, frame), drops copies, and finds the start of each frame's episode.
void LogRecovery::SortFrames() {
  const auto less = [](const FoundFrame& a, const FoundFrame& b) {
    return a.stream != b.stream ? a.stream < b.stream : a.frame < b.frame;
  };
  // The sort is stable: of several copies, the one in the latest record stays.
  if (!std::ranges::is_sorted(frame, less)) std::ranges::stable_sort(frame, less);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    const bool copy = i + 1 < frame.size() && frame[i].stream == frame[i + 1].stream &&
                      frame[i].frame == frame[i + 1].frame;
    if (!copy) frame[kept++] = frame[i];
  }
  frame.resize(kept);
  episode.resize(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    const bool follows =
        i > 0 && frame[i].stream == frame[i - 1].stream && frame[i].frame == frame[i - 1].frame + 1;
    if (follows && frame[i - 1].entry.final) frame[i].entry.first = 1;
    episode[i] = follows && !frame[i].entry.first ? episode[i - 1] : std::uint32_t(i);
  }
}

// Looks up an item's first frame; false unless all its frames are there.
bool LogRecovery::FindFrames(FoundItem* item) {
  const ItemRecord& written = item->written;
  const std::pair<StreamId, std::uint64_t> from{written.stream, written.first_frame - written.lead};
  const auto it = std::ranges::lower_bound(frame, from, {}, [](const FoundFrame& f) {
    return std::pair{f.stream, f.frame};
  });
  const auto first = std::size_t(it - frame.begin());
  const std::size_t last = first + written.lead + written.length;
  if (last >= frame.size() || frame[first].stream != from.first ||
      frame[first].frame != from.second) {
    return false;
  }
  item->first = std::uint32_t(first);
  return episode[last] <= first;  // consecutive, and of one episode
}

// ---- 4. Entries, streams, slots -----------------------------------------------------------------

// Finds the newest consecutive frames of each stream, at most `history`.
void LogRecovery::FindTails() {
  const auto history = std::size_t(table->streams.history());
  for (std::size_t end = frame.size(); end > 0;) {
    const StreamId stream = frame[end - 1].stream;
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < history && frame[begin - 1].stream == stream &&
           frame[begin - 1].frame + 1 == frame[begin].frame) {
      --begin;
    }
    tails.push_back({last_heard[stream], begin, end});
    while (end > 0 && frame[end - 1].stream == stream) --end;
  }
  std::ranges::sort(tails, {}, &Tail::heard);
}

// Allocates entries for the frames of items first. All live items fit into the log at some time.
// If they need more frames than this log has (a smaller capacity, or items that left after the
// snapshot), the remover evicts some later.
Status LogRecovery::AdoptFrames(const std::vector<FoundItem>& alive) {
  std::vector<bool> wanted(frame.size());
  std::int64_t count = 0;
  const auto want = [&](std::size_t i) {
    count += !wanted[i];
    wanted[i] = true;
  };
  for (const FoundItem& item : alive) {
    for (std::uint32_t j = 0; j <= item.written.lead + item.written.length; ++j) {
      want(item.first + j);
    }
  }
  TROOP_RETURN_IF_ERROR(table->log.Reserve(count));
  // A stream whose tail does not fit keeps the part that does, mostly nothing.
  for (auto tail = tails.rbegin(); tail != tails.rend(); ++tail) {
    std::size_t i = tail->end;
    while (i > tail->begin && (wanted[i - 1] || count < table->log.capacity())) want(--i);
    tail->begin = i;
  }
  for (std::size_t i = 0; i < frame.size(); ++i) {
    if (!wanted[i]) continue;
    frame[i].id = table->log.Adopt(frame[i].entry, frame[i].place);
    ++counts->frames;
    if (i > 0 && frame[i - 1].id != 0 && episode[i] < i) {
      table->log.Link(frame[i - 1].id, frame[i].id);
    }
  }
  return Status::Ok();
}

// In order of activity, which is the order of the stream list.
void LogRecovery::AdoptStreams() {
  std::vector<FrameLog::FrameId> ids;
  for (const Tail& tail : tails) {
    if (tail.begin == tail.end) continue;
    ids.clear();
    for (std::size_t i = tail.begin; i < tail.end; ++i) ids.push_back(frame[i].id);
    const FoundFrame& last = frame[tail.end - 1];
    table->streams.Adopt(last.stream, last.frame + 1, ids);
  }
}

// Adds live items to their slots, to the insertion order and to the selectors.
void LogRecovery::AddItems(const std::vector<FoundItem>& alive) {
  std::vector<Selector::Slot> slots;
  std::vector<float> priorities;
  for (const FoundItem& item : alive) {
    const ItemRecord& written = item.written;
    table->log.Refer(frame[item.first].id, written.lead + written.length + 1);
    if (EventHistory* const history = table->options.history) {
      history->Note(
          {HistoryEvent::kRestored, written.stream, written.first_frame, written.length, 0});
    }
    const StoredItem stored{.first = frame[item.first].id,
                            .generation = written.generation,
                            .policy_version = written.policy_version,
                            .number = written.number,
                            .length = std::uint16_t(written.length),
                            .lead = std::uint16_t(written.lead),
                            .priority = written.priority};
    table->slots.Restore(written.slot, stored,
                         {.times_sampled = written.times_sampled,
                          .segment = item.segment,
                          .state = item.state,
                          .recovered = 1});
    table->log.store().Revive(item.segment, table->log.layout().item_bytes());
    table->ages.NoteItem(written.slot);
    slots.push_back(written.slot);
    priorities.push_back(written.priority);
  }
  if (table->feed.enabled()) {
    table->feed.NoteNewFrames({});
    for (const Selector::Slot slot : slots) table->feed.NoteItem(slot);
  }
  table->selectors.Add(slots, priorities);
  counts->items = std::int64_t(slots.size());
  table->slots.FinishRestore(slots.empty() ? 0 : slots.back() + 1,
                             std::max(inserted, snapshot.counters.inserted));
}

// Restores counters, none below what the log itself shows.
void LogRecovery::RestoreCounters() {
  table->RestoreCounters(snapshot.counters);
  for (const Snapshot::Line& line : snapshot.lines) {
    for (const SlotState& slot : line.slot) {
      generation_max = std::max(generation_max, slot.generation);
    }
  }
  // New generations must not meet those of keys that were handed out: if the first generation lies
  // just below one of them, start above, or wrap around.
  std::uint32_t& next = table->options.first_generation;
  if (next <= generation_max && generation_max - next < (1u << 24)) {
    next = generation_max < ~std::uint32_t{0} - 1024 ? generation_max + 1024 : 1;
  }
  table->slots.SetFirstGeneration(next);
}

}  // namespace

Result<Table> Table::Recover(const Options& options, std::vector<std::shared_ptr<Segment>> segments,
                             const Snapshot& snapshot, RecoverCounts* counts,
                             std::span<const std::shared_ptr<const FrameDictionary>> dictionaries) {
  *counts = {};
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<TableParts> table, TableParts::Make(options));
  for (const auto& dictionary : dictionaries) {
    table->inserter.checker().AddDictionary(dictionary);
  }
  LogRecovery recovery{.table = table.get(), .snapshot = snapshot, .counts = counts};
  // If the capacity is smaller now, slots beyond it are read too, to count their items as lost.
  const auto known = std::min(snapshot.lines.size() * kSlotsPerLine, std::size_t(kItemsMax));
  recovery.newest.resize(std::max(std::size_t(table->slots.capacity()), known));
  PhaseProgress progress("restoring", "segments", std::ssize(segments));
  std::int64_t done = 0;
  for (const auto& segment : segments) {
    recovery.ReadSegment(segment);
    progress.Show(++done);
  }
  recovery.CountUnfound();
  recovery.SortFrames();
  std::vector<FoundItem> alive = recovery.FindAlive();
  recovery.FindTails();
  TROOP_RETURN_IF_ERROR(recovery.AdoptFrames(alive));
  recovery.AdoptStreams();
  recovery.AddItems(alive);
  recovery.RestoreCounters();
  table->log.store().FreeEmpty();
  return Table(std::move(table));
}

}  // namespace troop
