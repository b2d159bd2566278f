// DeltaFeed: table deltas, the incremental updates for a replica of a table (GPU replay).
#include "replay/items/delta_feed.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop {

std::size_t DeltaFeed::Bytes(std::int64_t slots, std::int64_t frames) {
  return std::size_t(slots) * sizeof(Arrival) + std::size_t(frames) * sizeof(FrameDeltaState);
}

// Resets the entries of the frames.
void DeltaFeed::NoteNewFrames(std::span<const FrameId> ids) {
  const std::size_t known = std::size_t(log_->last_id()) + 1;
  if (fed_.size() < known) fed_.resize(known);
  for (const FrameId id : ids) fed_[id] = {};
}

void DeltaFeed::NoteItem(Slot slot) {
  const StoredItem& stored = slots_->item(slot);
  arrivals_.push_back({stored.number, slots_->key(slot)});
  FrameId id = stored.first;
  for (std::uint32_t w = 0; w < stored.frames(); ++w, id = log_->entry(id).next) {
    fed_[id].first_item = std::min(fed_[id].first_item, stored.number);
  }
}

// Eviction is by age, so evicted items are at the front.
std::uint64_t DeltaFeed::OldestNumber() {
  while (!arrivals_.empty()) {
    if (slots_->Alive(arrivals_.front().key)) return arrivals_.front().number;
    arrivals_.pop_front();
  }
  return slots_->inserted();
}

// Adds a frame to the delta; returns its bytes when decoded.
std::size_t DeltaFeed::AppendFrame(FrameId id, TableDelta* out) const {
  const FrameLog::Entry& entry = log_->entry(id);
  const RecordLayout& layout = log_->layout();
  out->place.push_back(id);
  out->reward.push_back(entry.reward);
  out->discount.push_back(entry.discount);
  const std::byte* const action_bytes = log_->action(entry);
  out->action.insert(out->action.end(), action_bytes, action_bytes + layout.action_bytes);
  out->observation.push_back({log_->observation(entry), entry.bytes});
  return layout.observation_bytes + layout.column_bytes();
}

// Adds an item and those of its frames that the replica lacks; returns their bytes.
std::size_t DeltaFeed::AppendItem(const Arrival& arrival, const DeltaCursor& at, TableDelta* out) {
  const StoredItem& stored = slots_->item(Slot(arrival.key));
  out->number.push_back(arrival.number);
  out->key.push_back(arrival.key);
  out->policy_version.push_back(stored.policy_version);
  out->priority.push_back(stored.priority);
  out->length.push_back(stored.length);
  out->lead.push_back(stored.lead);
  std::size_t bytes = 0;
  FrameId id = stored.first;
  for (std::uint32_t w = 0; w < stored.frames(); ++w) {
    out->window.push_back(id);
    FrameDeltaState& about = fed_[id];
    // The replica has a frame if this delta, or an item that it received, contained it.
    const bool there =
        about.in_feed == feeds_ || (about.first_item >= at.start && about.first_item < at.next);
    if (!there) bytes += AppendFrame(id, out);
    about.in_feed = feeds_;
    id = log_->entry(id).next;
  }
  return bytes;
}

DeltaCursor DeltaFeed::Read(DeltaCursor at, std::int64_t items_max, std::size_t bytes_max,
                            TableDelta* out) {
  TROOP_CHECK(enabled_ && at.start <= at.next, "table delta from {}, start {}", at.next, at.start);
  out->Clear();
  ++feeds_;
  const std::uint64_t oldest = OldestNumber();
  // Items were evicted before the replica received them, and possibly their frames with them:
  // restart at the oldest item.
  if (at.next < oldest) at = {oldest, oldest};
  auto next = std::ranges::lower_bound(arrivals_, at.next, {}, &Arrival::number);
  std::size_t bytes = 0;
  for (; next != arrivals_.end() && out->items() < items_max && bytes < bytes_max; ++next) {
    bytes += AppendItem(*next, at, out);
  }
  // Items inserted and evicted again have no entry, so the end is the insertion count.
  at.next = next == arrivals_.end() ? slots_->inserted() : next->number;
  return at;
}

}  // namespace troop
