// Compaction: moves live records out of the emptiest segments, so that their memory can be freed.
#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "replay/table/table_state.h"

namespace troop {

// Content of one moved record: runs of live frames, and items, of one segment.
struct Table::State::Moves {
  struct Frame {
    FrameId id = 0;
    const std::byte* observation = nullptr;
    const std::byte* action = nullptr;
    std::uint8_t final = 0;
  };
  std::vector<ChunkRecord> chunks;
  std::vector<Frame> frames;  // frames of all chunks, in order
  std::vector<ItemRecord> items;
  std::vector<const std::byte*> states;  // [items]
  std::size_t encoded_bytes = 0;
};

// True if enough is dead to compact. A FIFO table has dead bytes only at its old end, which is
// freed without moving anything: compacting what is about to be evicted would only cost writes.
// The slack of some segments avoids that.
bool Table::State::WastesMuch(bool tight) const {
  const SegmentStore& store = log.store();
  if (tight) return store.garbage() > store.live() / 4 + store.segment_bytes();
  return store.garbage() > store.live() / 2 + 3 * store.segment_bytes();
}

// Continues with the segment of the last call, or picks the emptiest one, and moves its records in
// order until `budget` is used up. Reading counts as 1/8 of a move.
void Table::State::Compact(std::size_t budget, bool tight) {
  std::size_t done = 0;
  while (done < budget) {
    SegmentStore& store = log.store();
    // The victim may have been freed in between, and its index reused for another segment.
    const bool going_on = victim != SegmentStore::kNone && store.segment(victim) != nullptr &&
                          store.segment(victim)->id() == victim_id;
    if (!going_on) {
      victim = WastesMuch(tight) ? store.Emptiest() : SegmentStore::kNone;
      if (victim == SegmentStore::kNone) return;
      victim_id = store.segment(victim)->id();
      victim_offset = victim_frame = 0;
    }
    // Keeps the memory alive while it is read: moving its last frame frees the segment.
    const std::shared_ptr<Segment> source = store.segment(victim);
    const std::uint64_t before = compacted;
    Moves moves;
    const std::size_t from_offset = victim_offset, from_frame = victim_frame;
    // The damaged end of a recovered segment has no live records.
    const std::span<const std::byte> readable = store.readable(victim);
    while (victim_offset < readable.size() && moves.encoded_bytes < budget / 2 + 1) {
      victim_offset = store.SkipHole(victim, victim_offset);
      const Status status = ReadRecord(readable.subspan(victim_offset), layout, false, &record);
      TROOP_CHECK(status.ok(), "segment {}, byte {}: {}", victim_id, victim_offset,
                  status.message());
      CollectMoves(record, &moves);
      victim_offset += record.bytes;
      done += record.bytes / 8;  // the cost of reading
    }
    // Without memory nothing was moved: retry from the same record later.
    if (!WriteMoves(moves)) {
      victim_offset = from_offset;
      victim_frame = from_frame;
      return;
    }
    done += std::size_t(compacted - before) + 1;
    // Once every live record was moved, the segment must have been freed.
    const bool gone = store.segment(victim) == nullptr || store.segment(victim)->id() != victim_id;
    TROOP_CHECK(gone || victim_offset < readable.size(), "segment {} keeps {} bytes alive",
                victim_id, store.live());
    if (gone) victim = SegmentStore::kNone;
  }
}

// Adds the live frames and items of one record. A frame is live if its entry still points to this
// copy; an item, if its slot has the record's generation and points to this segment.
void Table::State::CollectMoves(const Record& from, Moves* moves) {
  const std::byte* const base = log.store().base(victim);
  const std::vector<std::uint32_t>& ids = log.store().frames(victim);
  for (const Record::ChunkAt& chunk : from.chunks) {
    const std::byte* observation = chunk.columns.observation;
    for (std::uint32_t i = 0; i < chunk.header.frames; ++i, ++victim_frame) {
      const FrameId id = ids[victim_frame];
      std::uint32_t bytes = std::uint32_t(layout.observation_bytes);
      if (layout.has_codec) std::memcpy(&bytes, chunk.columns.frame_bytes + std::size_t{i} * 4, 4);
      const std::byte* const at = observation;
      observation += bytes;
      if (id == 0) continue;
      const FrameLog::Entry& entry = log.entry(id);
      const auto offset = std::uint32_t(at - base);
      if (entry.references == 0 || entry.segment != victim || entry.offset != offset) continue;
      const std::uint64_t number = chunk.header.first_frame + i;
      // Joins consecutive frames into one chunk.
      ChunkRecord* const last = moves->chunks.empty() ? nullptr : &moves->chunks.back();
      if (last == nullptr || last->stream != chunk.header.stream ||
          last->first_frame + last->frames != number) {
        moves->chunks.push_back({chunk.header.stream, number, 0, 0});
      }
      ++moves->chunks.back().frames;
      moves->chunks.back().encoded_bytes += bytes;
      moves->encoded_bytes += bytes;
      moves->frames.push_back({id, at, chunk.columns.action + i * layout.action_bytes,
                               std::uint8_t(chunk.columns.final[i])});
    }
  }
  for (std::uint32_t i = 0; i < from.items; ++i) {
    ItemRecord written = from.ItemAt(i);
    if (std::int64_t(written.slot) >= slots) continue;
    const Stored& stored = item[written.slot];
    if (!IsLive(stored) || stored.generation != written.generation ||
        cold[written.slot].segment != victim) {
      continue;
    }
    // The moved record has the current priority, which a restart uses without a newer snapshot.
    written.priority = stored.priority;
    written.times_sampled = cold[written.slot].times_sampled;
    moves->items.push_back(written);
    moves->states.push_back(from.state + i * layout.state_bytes);
    moves->encoded_bytes += layout.item_bytes();
  }
}

// Appends the moved record and redirects entries and items to it. False: not enough memory.
bool Table::State::WriteMoves(const Moves& moves) {
  if (moves.frames.empty() && moves.items.empty()) return true;
  std::size_t encoded = 0;
  for (const ChunkRecord& chunk : moves.chunks) encoded += chunk.encoded_bytes;
  const auto items = std::uint32_t(moves.items.size());
  const std::size_t bytes =
      layout.RecordBytes(moves.chunks.size(), items, moves.frames.size(), encoded);
  SegmentStore& store = log.store();
  const std::size_t memory = store.memory() + store.Needs(bytes);
  if (options.bytes_max > 0 && memory > options.bytes_max) return false;
  if (!store.Prepare(bytes).ok()) return false;
  const SegmentStore::Place place = store.Append(bytes);
  RecordWriter writer(layout, place.at, RecordHeader::kMoved, moves.chunks, items, bytes);
  std::vector<std::uint32_t>& ids = store.frames(place.segment);
  const Moves::Frame* frame = moves.frames.data();
  // RecordWriter returns const places; the record's memory is still ours to write.
  const auto writable = [&place, &store](const std::byte* at) {
    return place.at + (at - store.base(place.segment)) - place.offset;
  };
  for (const ChunkRecord& chunk : moves.chunks) {
    const ChunkColumns to = writer.Place(chunk);
    std::byte* observation = writable(to.observation);
    for (std::uint32_t i = 0; i < chunk.frames; ++i, ++frame) {
      const FrameLog::Entry entry = log.entry(frame->id);
      std::byte* const action_to = writable(to.action) + i * layout.action_bytes;
      if (layout.action_bytes > 0) std::memcpy(action_to, frame->action, layout.action_bytes);
      std::memcpy(writable(to.reward) + std::size_t{i} * 4, &entry.reward, 4);
      std::memcpy(writable(to.discount) + std::size_t{i} * 4, &entry.discount, 4);
      *(writable(to.final) + i) = std::byte(frame->final);
      if (layout.has_codec) {
        std::memcpy(writable(to.frame_bytes) + std::size_t{i} * 4, &entry.bytes, 4);
      }
      std::memcpy(observation, frame->observation, entry.bytes);
      log.Relocate(frame->id, place, observation, action_to);
      ids.push_back(frame->id);
      observation += entry.bytes;
    }
  }
  for (std::uint32_t i = 0; i < items; ++i) {
    std::memcpy(writer.item + i * sizeof(ItemRecord), &moves.items[i], sizeof(ItemRecord));
    if (layout.state_bytes > 0) {
      std::memcpy(writer.state + i * layout.state_bytes, moves.states[i], layout.state_bytes);
    }
    Cold& rest = cold[moves.items[i].slot];
    const SegmentStore::Index before = rest.segment;
    rest.segment = place.segment;
    rest.state = std::uint32_t(writer.state + i * layout.state_bytes - place.at) + place.offset;
    store.AddLive(place.segment, layout.item_bytes());
    store.DropLive(before, layout.item_bytes());
  }
  writer.Finish(options.checksums);
  compacted += bytes;
  return true;
}

}  // namespace troop
