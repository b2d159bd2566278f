#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "replay/storage/huge_array.h"

namespace troop {

// Allocates the ids 1 … last(): in ascending order, cyclically, skipping live ones, so that frames
// received in sequence have adjacent ids, in whatever order earlier frames left.
// Owner: one thread (a FrameLog). Cost: one bit per id; Take is O(1) on average, Free is O(1).
class FrameIds {
 public:
  using Id = std::uint32_t;  // 0: none

  static Result<FrameIds> Make(std::int64_t ids);  // kResourceExhausted
  // Memory of Make(ids).
  static std::size_t Bytes(std::int64_t ids) {
    return HugeArray<std::uint64_t>::Bytes(std::size_t(ids) / 64 + 1);
  }

  // Allocates an id. REQUIRES: live() < last().
  Id Take();
  // Makes an id available again. REQUIRES: it is live.
  void Free(Id id) {
    unused_[id / 64] |= std::uint64_t{1} << (id % 64);
    ++unused_count_;
  }
  std::int64_t live() const { return std::int64_t(fresh_ - unused_count_); }
  bool untouched() const { return fresh_ == 0; }  // true if Take was never called
  Id last() const { return last_; }
  std::size_t bytes() const { return unused_.bytes(); }

 private:
  // Ids are reused when 1/16 of those allocated are free, which keeps the search for one short. A
  // larger share would only use more memory.
  static constexpr std::uint64_t kUnusedShare = 16;
  FrameIds(std::int64_t ids, HugeArray<std::uint64_t> unused)
      : last_(Id(ids)), unused_(std::move(unused)) {}

  Id last_;
  HugeArray<std::uint64_t> unused_;  // one bit per id in [1, fresh_]; set if not live
  std::uint64_t unused_count_ = 0;   // number of set bits
  std::uint64_t fresh_ = 0;          // ids ever allocated
  std::uint64_t cursor_ = 0;         // next id to examine
};

// Inline, as it runs for each frame of an insert.
inline FrameIds::Id FrameIds::Take() {
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
