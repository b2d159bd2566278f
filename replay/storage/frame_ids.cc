// FrameIds: a bitmap of unused ids with a cyclic search.
#include "replay/storage/frame_ids.h"

#include <bit>

#include "core/base/check.h"

namespace troop {
namespace {

// Ids are reused when 1/16 of those allocated are free, which keeps the search for one short. A
// larger share would only use more memory.
constexpr std::uint64_t kUnusedShare = 16;

}  // namespace

Result<FrameIds> FrameIds::Make(std::int64_t ids) {
  TROOP_ASSIGN_OR_RETURN(auto unused, HugeArray<std::uint64_t>::Make(std::size_t(ids) / 64 + 1));
  return FrameIds(ids, std::move(unused));
}

FrameIds::Id FrameIds::Take() {
  if (unused_count_ <= fresh_ / kUnusedShare && fresh_ < last_) return Id(++fresh_);
  TROOP_CHECK(unused_count_ > 0, "no room was made for a frame");
  // Cyclic search from cursor_ for the next set bit.
  const std::uint64_t words = fresh_ / 64 + 1;
  std::uint64_t word = cursor_ / 64;
  std::uint64_t left = unused_[word] >> (cursor_ % 64) << (cursor_ % 64);
  while (left == 0) {
    word = word + 1 < words ? word + 1 : 0;
    left = unused_[word];
  }
  const std::uint64_t id = word * 64 + std::uint64_t(std::countr_zero(left));
  unused_[word] &= ~(std::uint64_t{1} << (id % 64));
  --unused_count_;
  cursor_ = id < fresh_ ? id + 1 : 1;
  return Id(id);
}

}  // namespace troop
