#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "replay/table_state.h"

namespace troop {

// What one moved record will hold: runs of frames and items that live in a segment.
struct Table::State::Moves {
  struct Frame {
    FrameId id = 0;
    const std::byte* observation = nullptr;
    const std::byte* action = nullptr;
    std::uint8_t final = 0;
  };
  std::vector<ChunkRecord> chunks;
  std::vector<Frame> frames;  // of all chunks
  std::vector<ItemRecord> items;
  std::vector<const std::byte*> states;
  std::size_t encoded_bytes = 0;
};

// A first-in-first-out table has a dead piece at its old end alone, which leaves by itself: moving
// what is about to die would cost writes and gain nothing.
bool Table::State::WastesMuch(bool tight) const {
  const SegmentStore& store = log.store();
  if (tight) return store.garbage() > store.live() / 4 + store.segment_bytes();
  return store.garbage() > store.live() / 2 + 3 * store.segment_bytes();
}

void Table::State::Compact(std::size_t budget, bool tight) {
  std::size_t done = 0;
  while (done < budget) {
    SegmentStore& store = log.store();
    const bool going_on = victim != SegmentStore::kNone && store.segment(victim) != nullptr &&
                          store.segment(victim)->id() == victim_id;
    if (!going_on) {
      victim = WastesMuch(tight) ? store.Emptiest() : SegmentStore::kNone;
      if (victim == SegmentStore::kNone) return;
      victim_id = store.segment(victim)->id();
      victim_offset = victim_frame = 0;
    }
    // Alive while it is read, though its last frame may leave it on the way.
    const std::shared_ptr<Segment> source = store.segment(victim);
    const std::uint64_t before = compacted;
    Moves moves;
    const std::size_t from_offset = victim_offset, from_frame = victim_frame;
    // The damaged end of a segment that was recovered holds nothing that lives.
    const std::span<const std::byte> readable = store.readable(victim);
    while (victim_offset < readable.size() && moves.encoded_bytes < budget / 2 + 1) {
      victim_offset = store.SkipHole(victim, victim_offset);
      const Status status = ReadRecord(readable.subspan(victim_offset), layout, false, &record);
      TROOP_CHECK(status.ok(), "segment {}, byte {}: {}", victim_id, victim_offset,
                  status.message());
      CollectMoves(record, &moves);
      victim_offset += record.bytes;
      done += record.bytes / 8;  // reading costs too
    }
    if (!WriteMoves(moves)) {
      victim_offset = from_offset;
      victim_frame = from_frame;
      return;
    }
    done += std::size_t(compacted - before) + 1;
    const bool gone = store.segment(victim) == nullptr || store.segment(victim)->id() != victim_id;
    TROOP_CHECK(gone || victim_offset < readable.size(), "segment {} keeps {} bytes alive",
                victim_id, store.live());
    if (gone) victim = SegmentStore::kNone;
  }
}

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
    if (!Lives(stored) || stored.generation != written.generation ||
        cold[written.slot].segment != victim) {
      continue;
    }
    written.priority = stored.priority;
    written.times_sampled = cold[written.slot].times_sampled;
    moves->items.push_back(written);
    moves->states.push_back(from.state + i * layout.state_bytes);
    moves->encoded_bytes += layout.item_bytes();
  }
}

// False: there is no memory for it.
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
