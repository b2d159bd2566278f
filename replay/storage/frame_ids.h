#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

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
  FrameIds(std::int64_t ids, HugeArray<std::uint64_t> unused)
      : last_(Id(ids)), unused_(std::move(unused)) {}

  Id last_;
  HugeArray<std::uint64_t> unused_;  // one bit per id in [1, fresh_]; set if not live
  std::uint64_t unused_count_ = 0;   // number of set bits
  std::uint64_t fresh_ = 0;          // ids ever allocated
  std::uint64_t cursor_ = 0;         // next id to examine
};

}  // namespace troop
