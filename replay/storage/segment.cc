// Segment: append-only memory of the log, and its replacement by a mapped file.
#include "replay/storage/segment.h"

#include <sys/mman.h>

#include "core/base/check.h"
#include "replay/storage/huge_array.h"

namespace troop {

// Pages take memory only when written, so an oversized capacity is cheap.
Result<std::shared_ptr<Segment>> Segment::Make(std::uint64_t id, std::size_t capacity) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> memory, MapZeroPages(capacity));
  std::shared_ptr<Segment> segment(new Segment);
  segment->id_ = id;
  segment->memory_ = std::move(memory);
  segment->data_ = segment->memory_.get();
  segment->capacity_ = capacity;
  return segment;
}

// The buffer keeps the mapping alive.
std::shared_ptr<Segment> Segment::Adopt(std::uint64_t id, Buffer bytes) {
  std::shared_ptr<Segment> segment(new Segment);
  segment->id_ = id;
  segment->data_ = bytes.data();
  segment->used_ = segment->capacity_ = bytes.size();
  segment->elsewhere_ = std::move(bytes);
  segment->sealed_ = true;
  return segment;
}

void Segment::Seal() {
  sealed_ = true;
  // Only whole pages after the used ones can be returned.
  const std::size_t kept = RoundToPages(used_), all = RoundToPages(capacity_);
  if (kept < all) ::madvise(memory_.get() + kept, all - kept, MADV_DONTNEED);
}

std::byte* Segment::Reserve(std::size_t bytes) {
  TROOP_CHECK(!sealed_, "segment {} is sealed", id_);
  if (bytes > capacity_ - used_) return nullptr;
  std::byte* const at = memory_.get() + used_;
  used_ += bytes;
  return at;
}

// Readers hold the segment, not its memory: pointers into it must be fetched again.
void Segment::MoveTo(Buffer bytes) {
  TROOP_CHECK(sealed_ && bytes.size() == used_, "segment {}: {} bytes for {}", id_, bytes.size(),
              used_);
  elsewhere_ = std::move(bytes);
  data_ = elsewhere_.data();
  capacity_ = used_;
  memory_.reset();
}

}  // namespace troop
