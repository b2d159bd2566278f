// Table deltas: incremental updates for a replica of a table (GPU replay).
#include <algorithm>

#include "core/base/check.h"
#include "replay/table/table_state.h"

namespace troop {

// Resets the entries of frames that were just written: no replica has their content.
void Table::State::NoteNewFrames(std::span<const FrameId> ids) {
  if (fed.size() < std::size_t(log.last_id()) + 1) fed.resize(std::size_t(log.last_id()) + 1);
  for (const FrameId id : ids) fed[id] = {};
}

// Appends an item to the insertion order. Must be called in order of the items' numbers.
void Table::State::NoteArrival(Slot slot) {
  const Stored& stored = item[slot];
  arrivals.push_back({stored.number, std::uint64_t{stored.generation} << 32 | slot});
  FrameId id = stored.first;
  for (std::uint32_t w = 0; w < stored.frames(); ++w, id = log.entry(id).next) {
    fed[id].first_item = std::min(fed[id].first_item, stored.number);
  }
}

// Number of the oldest item. Eviction is by age, so evicted items are at the front.
std::uint64_t Table::State::OldestNumber() {
  while (!arrivals.empty()) {
    const Stored& stored = item[Slot(arrivals.front().key)];
    if (stored.generation == arrivals.front().key >> 32 && IsLive(stored)) {
      return arrivals.front().number;
    }
    arrivals.pop_front();
  }
  return inserted;
}

// Adds a frame to the delta; returns its bytes when decoded.
std::size_t Table::State::AppendFrameToDelta(FrameId id, TableDelta* out) {
  const FrameLog::Entry& entry = log.entry(id);
  out->place.push_back(id);
  out->reward.push_back(entry.reward);
  out->discount.push_back(entry.discount);
  const std::byte* const action_bytes = log.action(entry);
  out->action.insert(out->action.end(), action_bytes, action_bytes + layout.action_bytes);
  out->observation.push_back({log.observation(entry), entry.bytes});
  return layout.observation_bytes + layout.column_bytes();
}

DeltaCursor Table::State::ReadDelta(DeltaCursor at, std::int64_t items_max, std::size_t bytes_max,
                                    TableDelta* out) {
  TROOP_CHECK(options.feed && at.start <= at.next, "table delta from {}, start {}", at.next,
              at.start);
  out->Clear();
  ++feeds;
  const std::uint64_t oldest = OldestNumber();
  // Items were evicted before the replica received them, and possibly their frames with them:
  // restart at the oldest item.
  if (at.next < oldest) at = {oldest, oldest};
  auto next = std::ranges::lower_bound(arrivals, at.next, {}, &Arrival::number);
  std::size_t bytes = 0;
  for (; next != arrivals.end() && out->items() < items_max && bytes < bytes_max; ++next) {
    const Stored& stored = item[Slot(next->key)];
    out->number.push_back(next->number);
    out->key.push_back(next->key);
    out->policy_version.push_back(stored.policy_version);
    out->priority.push_back(stored.priority);
    out->length.push_back(stored.length);
    out->lead.push_back(stored.lead);
    FrameId id = stored.first;
    for (std::uint32_t w = 0; w < stored.frames(); ++w) {
      out->window.push_back(id);
      FrameDeltaState& about = fed[id];
      // The replica has a frame if this delta, or an item that it received, contained it.
      const bool there =
          about.in_feed == feeds || (about.first_item >= at.start && about.first_item < at.next);
      if (!there) bytes += AppendFrameToDelta(id, out);
      about.in_feed = feeds;
      id = log.entry(id).next;
    }
  }
  // Items inserted and evicted again have no entry, so the end is the insertion count.
  at.next = next == arrivals.end() ? inserted : next->number;
  return at;
}

// Trims a soft capacity, as EvictAfterSample does for samples of the table itself.
void Table::State::CountReplicaSamples(std::int64_t items) {
  ReleaseHeld();
  samples_since_trim += std::uint64_t(items);
  if (options.trim_every_samples == 0 ||
      samples_since_trim < std::uint64_t(options.trim_every_samples)) {
    return;
  }
  samples_since_trim = 0;
  TrimToCapacity();
}

DeltaCursor Table::ReadDelta(const DeltaCursor& at, std::int64_t items_max, std::size_t bytes_max,
                             TableDelta* out) {
  return state_->ReadDelta(at, items_max, bytes_max, out);
}
void Table::CountReplicaSamples(std::int64_t items) { state_->CountReplicaSamples(items); }
std::uint64_t Table::oldest_number() const { return state_->OldestNumber(); }
ReplicaSizes Table::replica_sizes() const {
  return {std::uint64_t(state_->slots), std::uint64_t{state_->log.last_id()} + 1};
}

}  // namespace troop
