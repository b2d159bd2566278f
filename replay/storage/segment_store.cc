// SegmentStore: opens, fills, frees and moves the segments of a log.
#include "replay/storage/segment_store.h"

#include <algorithm>

#include "core/base/check.h"
#include "replay/storage/huge_array.h"

namespace troop {

// Indices of freed segments are reused; base_ and slots_ have the same size.
SegmentStore::Index SegmentStore::AddSlot(std::shared_ptr<Segment> segment, std::size_t memory) {
  Index index = 0;
  if (free_.empty()) {
    index = Index(slots_.size());
    slots_.emplace_back();
    base_.push_back(nullptr);
  } else {
    index = free_.back();
    free_.pop_back();
  }
  base_[index] = segment->data();
  slots_[index].segment = std::move(segment);
  slots_[index].memory = memory;
  memory_ += memory;
  return index;
}

// A record larger than a segment gets a separate segment of the record's size.
std::size_t SegmentStore::Needs(std::size_t record_bytes) const {
  if (open_ != kNone) {
    const Segment& open = *slots_[open_].segment;
    if (record_bytes <= open.capacity() - open.used()) return 0;
  }
  return RoundToPages(std::max(segment_bytes_, record_bytes));
}

Status SegmentStore::Prepare(std::size_t record_bytes) {
  if (Needs(record_bytes) == 0) return Status::Ok();
  const std::size_t capacity = std::max(segment_bytes_, record_bytes);
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment, Segment::Make(next_id_, capacity));
  ++next_id_;
  // Seal the open segment: return its unused pages, and free it if nothing in it is live.
  if (open_ != kNone) {
    // A segment without live bytes was kept only because it was open.
    const Index before = open_;
    slots_[before].segment->Seal();
    memory_ -= slots_[before].memory;
    slots_[before].memory = RoundToPages(slots_[before].segment->used());
    memory_ += slots_[before].memory;
    if (slots_[before].live == 0) Free(before);
  }
  position_ = {segment->id(), 0};
  open_ = AddSlot(std::move(segment), RoundToPages(capacity));
  return Status::Ok();
}

// Prepare has made room, so a failure here is a bug.
SegmentStore::Place SegmentStore::Append(std::size_t record_bytes) {
  TROOP_CHECK(open_ != kNone, "a record without a segment");
  Segment& open = *slots_[open_].segment;
  const auto offset = std::uint32_t(open.used());
  std::byte* const at = open.Reserve(record_bytes);
  TROOP_CHECK(at != nullptr, "no room was prepared for {} bytes", record_bytes);
  position_ = {open.id(), open.used()};
  appended_ += record_bytes;
  used_ += record_bytes;
  largest_record_ = std::max(largest_record_, record_bytes);
  return {open_, offset, at};
}

// New segments must get ids above all adopted ones.
SegmentStore::Index SegmentStore::Adopt(std::shared_ptr<Segment> segment) {
  TROOP_CHECK(segment->sealed() && segment->id() >= next_id_, "segment {} is not next",
              segment->id());
  next_id_ = segment->id() + 1;
  position_ = {segment->id(), segment->used()};
  // Mapped pages count as memory of this process.
  const std::size_t bytes = segment->used();
  used_ += bytes;
  return AddSlot(std::move(segment), bytes);
}

// During recovery, segments have no live bytes until their items are added.
void SegmentStore::FreeEmpty() {
  for (Index i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.segment != nullptr && slot.segment->sealed() && slot.live == 0) Free(i);
  }
}

// The journal learns of freed ids, to remove their files.
void SegmentStore::Free(Index index) {
  Slot& slot = slots_[index];
  if (notes_freed_) freed_.push_back(slot.segment->id());
  memory_ -= slot.memory;
  used_ -= slot.segment->used();
  full_ -= slot.full;
  slot = Slot{};
  base_[index] = nullptr;
  free_.push_back(index);
  if (open_ == index) open_ = kNone;
}

// Linear in the number of segments, which are few (see SegmentBytes in table.cc).
SegmentStore::Index SegmentStore::Emptiest() const {
  Index best = kNone;
  double best_share = 1;
  for (Index i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.segment == nullptr || !slot.segment->sealed()) continue;
    const double share = double(slot.live) / double(slot.full);
    if (share < best_share) {
      best = i;
      best_share = share;
    }
  }
  return best;
}

// Sorted by id, since indices are reused.
std::vector<std::shared_ptr<const Segment>> SegmentStore::All() const {
  std::vector<std::shared_ptr<const Segment>> all;
  for (const Slot& slot : slots_) {
    if (slot.segment != nullptr) all.push_back(slot.segment);
  }
  std::ranges::sort(all, {}, [](const auto& segment) { return segment->id(); });
  return all;
}

std::size_t SegmentStore::frame_list_bytes() const {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.frames.capacity() * sizeof(std::uint32_t);
  return bytes;
}

std::vector<std::uint64_t> SegmentStore::TakeFreed() { return std::exchange(freed_, {}); }

bool SegmentStore::MoveSegment(std::uint64_t id, Buffer bytes) {
  for (Index i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.segment == nullptr || slot.segment->id() != id) continue;
    // Readers use base_, so it must follow the segment's memory.
    if (!slot.segment->sealed() || slot.segment->used() != bytes.size()) return false;
    slot.segment->MoveTo(std::move(bytes));
    base_[i] = slot.segment->data();
    memory_ -= slot.memory;
    slot.memory = slot.segment->used();
    memory_ += slot.memory;
    return true;
  }
  return false;
}

}  // namespace troop
