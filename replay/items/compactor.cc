// Compactor: collects the live records of a victim segment and appends them as one record.
#include "replay/items/compactor.h"

#include <cstring>
#include <memory>

#include "core/base/check.h"

namespace troop {

// Content of one moved record: runs of live frames, and items, of one segment.
struct Compactor::Moves {
  struct Frame {
    FrameLog::FrameId id = 0;
    const std::byte* observation = nullptr;
    const std::byte* action = nullptr;
    std::uint8_t final = 0;
  };
  std::vector<ChunkRecord> chunks;
  std::vector<Frame> frames;  // frames of all chunks, in order
  std::vector<ItemRecord> items;
  std::vector<const std::byte*> states;  // [items]
  std::size_t encoded_bytes = 0;

  // Joins consecutive frames into one chunk.
  void AddFrame(StreamId stream, std::uint64_t number, std::uint32_t bytes, const Frame& frame) {
    ChunkRecord* const last = chunks.empty() ? nullptr : &chunks.back();
    if (last == nullptr || last->stream != stream || last->first_frame + last->frames != number) {
      chunks.push_back({stream, number, 0, 0});
    }
    ++chunks.back().frames;
    chunks.back().encoded_bytes += bytes;
    encoded_bytes += bytes;
    frames.push_back(frame);
  }
};

// True if enough is dead to compact. A FIFO table has dead bytes only at its old end, which is
// freed without moving anything: compacting what is about to be evicted would only cost writes.
// The slack of some segments avoids that.
bool Compactor::WastesMuch(bool tight) const {
  const SegmentStore& store = log_->store();
  if (tight) return store.garbage() > store.live() / 4 + store.segment_bytes();
  return store.garbage() > store.live() / 2 + 3 * store.segment_bytes();
}

// Continues with the segment of the last call, or picks the emptiest one; false: none.
bool Compactor::FindVictim(bool tight) {
  const SegmentStore& store = log_->store();
  // The victim may have been freed in between, and its index reused for another segment.
  const bool going_on = victim_.segment != SegmentStore::kNone &&
                        store.segment(victim_.segment) != nullptr &&
                        store.segment(victim_.segment)->id() == victim_.id;
  if (going_on) return true;
  victim_.segment = WastesMuch(tight) ? store.Emptiest() : SegmentStore::kNone;
  if (victim_.segment == SegmentStore::kNone) return false;
  victim_.id = store.segment(victim_.segment)->id();
  victim_.offset = victim_.frame = 0;
  return true;
}

// Moves the victims' records in order until `budget` is used up. Reading counts as 1/8 of a move.
void Compactor::Compact(std::size_t budget, bool tight) {
  std::size_t done = 0;
  while (done < budget) {
    if (!FindVictim(tight)) return;
    SegmentStore& store = log_->store();
    // Keeps the memory alive while it is read: moving its last frame frees the segment.
    const std::shared_ptr<Segment> source = store.segment(victim_.segment);
    const std::uint64_t before = moved_bytes_;
    const Cursor from = victim_;
    Moves moves;
    done += ReadMoves(budget / 2 + 1, &moves) / 8;
    // Without memory nothing was moved: retry from the same record later.
    if (!WriteMoves(moves)) {
      victim_ = from;
      return;
    }
    done += std::size_t(moved_bytes_ - before) + 1;
    // Once every live record was moved, the segment must have been freed.
    const std::shared_ptr<Segment>& left = store.segment(victim_.segment);
    const bool gone = left == nullptr || left->id() != victim_.id;
    TROOP_CHECK(gone || victim_.offset < store.readable(victim_.segment).size(),
                "segment {} keeps {} bytes alive", victim_.id, store.live());
    if (gone) victim_.segment = SegmentStore::kNone;
  }
}

// Reads records from the victim until about `bytes_max` bytes of them are live; returns the bytes
// read.
std::size_t Compactor::ReadMoves(std::size_t bytes_max, Moves* moves) {
  const SegmentStore& store = log_->store();
  std::size_t read = 0;
  // The damaged end of a recovered segment has no live records.
  const std::span<const std::byte> readable = store.readable(victim_.segment);
  while (victim_.offset < readable.size() && moves->encoded_bytes < bytes_max) {
    victim_.offset = store.SkipHole(victim_.segment, victim_.offset);
    const Status status =
        ReadRecord(readable.subspan(victim_.offset), log_->layout(), false, &record_);
    TROOP_CHECK(status.ok(), "segment {}, byte {}: {}", victim_.id, victim_.offset,
                status.message());
    CollectFrames(record_, moves);
    CollectItems(record_, moves);
    victim_.offset += record_.bytes;
    read += record_.bytes;
  }
  return read;
}

// Adds the live frames of one record. A frame is live if its entry still points to this copy.
void Compactor::CollectFrames(const Record& from, Moves* moves) {
  const RecordLayout& layout = log_->layout();
  const std::byte* const base = log_->store().base(victim_.segment);
  const std::vector<std::uint32_t>& ids = log_->store().frames(victim_.segment);
  for (const Record::ChunkAt& chunk : from.chunks) {
    const std::byte* observation = chunk.columns.observation;
    for (std::uint32_t i = 0; i < chunk.header.frames; ++i, ++victim_.frame) {
      const FrameLog::FrameId id = ids[victim_.frame];
      std::uint32_t bytes = std::uint32_t(layout.observation_bytes);
      if (layout.has_codec) std::memcpy(&bytes, chunk.columns.frame_bytes + std::size_t{i} * 4, 4);
      const std::byte* const at = observation;
      observation += bytes;
      if (id == 0) continue;
      const FrameLog::Entry& entry = log_->entry(id);
      const auto offset = std::uint32_t(at - base);
      if (entry.references == 0 || entry.segment != victim_.segment || entry.offset != offset) {
        continue;
      }
      moves->AddFrame(chunk.header.stream, chunk.header.first_frame + i, bytes,
                      {id, at, chunk.columns.action + i * layout.action_bytes,
                       std::uint8_t(chunk.columns.final[i])});
    }
  }
}

// Adds the live items of one record. An item is live if its slot has the record's generation and
// points to this segment.
void Compactor::CollectItems(const Record& from, Moves* moves) const {
  const RecordLayout& layout = log_->layout();
  for (std::uint32_t i = 0; i < from.items; ++i) {
    ItemRecord written = from.ItemAt(i);
    if (std::int64_t(written.slot) >= slots_->capacity()) continue;
    const StoredItem& stored = slots_->item(written.slot);
    const ColdItem& rest = slots_->cold(written.slot);
    if (!stored.live() || stored.generation != written.generation ||
        rest.segment != victim_.segment) {
      continue;
    }
    // The moved record has the current priority, which a restart uses without a newer snapshot.
    written.priority = stored.priority;
    written.times_sampled = rest.times_sampled;
    moves->items.push_back(written);
    moves->states.push_back(from.state + i * layout.state_bytes);
    moves->encoded_bytes += layout.item_bytes();
  }
}

// Appends the moved record and redirects entries and items to it. False: not enough memory.
bool Compactor::WriteMoves(const Moves& moves) {
  if (moves.frames.empty() && moves.items.empty()) return true;
  std::size_t encoded = 0;
  for (const ChunkRecord& chunk : moves.chunks) encoded += chunk.encoded_bytes;
  const RecordLayout& layout = log_->layout();
  const auto items = std::uint32_t(moves.items.size());
  const std::size_t bytes =
      layout.RecordBytes(moves.chunks.size(), items, moves.frames.size(), encoded);
  SegmentStore& store = log_->store();
  const std::size_t memory = store.memory() + store.Needs(bytes);
  if (options_.bytes_max > 0 && memory > options_.bytes_max) return false;
  if (!store.Prepare(bytes).ok()) return false;
  const SegmentStore::Place place = store.Append(bytes);
  RecordWriter writer(layout, place.at, RecordHeader::kMoved, moves.chunks, items, bytes);
  WriteFrames(moves, place, &writer);
  WriteItems(moves, place, &writer);
  writer.Finish(options_.checksums);
  moved_bytes_ += bytes;
  return true;
}

void Compactor::WriteFrames(const Moves& moves, const SegmentStore::Place& place,
                            RecordWriter* writer) {
  const RecordLayout& layout = log_->layout();
  std::vector<std::uint32_t>& ids = log_->store().frames(place.segment);
  const std::byte* const base = log_->store().base(place.segment);
  // RecordWriter returns const places; the record's memory is still ours to write.
  const auto writable = [&place, base](const std::byte* at) {
    return place.at + (at - base) - place.offset;
  };
  const Moves::Frame* frame = moves.frames.data();
  for (const ChunkRecord& chunk : moves.chunks) {
    const ChunkColumns to = writer->Place(chunk);
    std::byte* observation = writable(to.observation);
    for (std::uint32_t i = 0; i < chunk.frames; ++i, ++frame) {
      const FrameLog::Entry entry = log_->entry(frame->id);
      std::byte* const action_to = writable(to.action) + i * layout.action_bytes;
      if (layout.action_bytes > 0) std::memcpy(action_to, frame->action, layout.action_bytes);
      std::memcpy(writable(to.reward) + std::size_t{i} * 4, &entry.reward, 4);
      std::memcpy(writable(to.discount) + std::size_t{i} * 4, &entry.discount, 4);
      *(writable(to.final) + i) = std::byte(frame->final);
      if (layout.has_codec) {
        std::memcpy(writable(to.frame_bytes) + std::size_t{i} * 4, &entry.bytes, 4);
      }
      std::memcpy(observation, frame->observation, entry.bytes);
      log_->Relocate(frame->id, place, observation, action_to);
      ids.push_back(frame->id);
      observation += entry.bytes;
    }
  }
}

void Compactor::WriteItems(const Moves& moves, const SegmentStore::Place& place,
                           RecordWriter* writer) {
  const RecordLayout& layout = log_->layout();
  SegmentStore& store = log_->store();
  for (std::size_t i = 0; i < moves.items.size(); ++i) {
    std::byte* const state = writer->state + i * layout.state_bytes;
    std::memcpy(writer->item + i * sizeof(ItemRecord), &moves.items[i], sizeof(ItemRecord));
    if (layout.state_bytes > 0) std::memcpy(state, moves.states[i], layout.state_bytes);
    const ItemSlots::Slot slot = moves.items[i].slot;
    const SegmentStore::Index before = slots_->cold(slot).segment;
    slots_->SetRecord(slot, place.segment, std::uint32_t(state - place.at) + place.offset);
    store.AddLive(place.segment, layout.item_bytes());
    store.DropLive(before, layout.item_bytes());
  }
}

}  // namespace troop
