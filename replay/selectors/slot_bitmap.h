#pragma once

#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "replay/storage/huge_array.h"

namespace troop::internal {

// Set of slots in use, one bit each. Owner: one selector.
class SlotBitmap {
 public:
  static Result<SlotBitmap> Make(std::int64_t slots) {
    SlotBitmap set;
    set.slots_ = slots;
    TROOP_ASSIGN_OR_RETURN(set.words_, HugeArray<std::uint64_t>::Make(Words(slots)));
    return set;
  }
  static std::size_t Bytes(std::int64_t slots) {
    return HugeArray<std::uint64_t>::Bytes(Words(slots));
  }

  bool Has(std::uint32_t slot) const {
    return slot < slots_ && (words_[slot / 64] >> (slot % 64) & 1) != 0;
  }
  // REQUIRES: not in the set.
  void Add(std::uint32_t slot) {
    TROOP_CHECK(slot < slots_ && !Has(slot), "slot {} of {} is taken", slot, slots_);
    words_[slot / 64] |= std::uint64_t{1} << (slot % 64);
    ++size_;
  }
  // REQUIRES: in the set.
  void Remove(std::uint32_t slot) {
    TROOP_CHECK(Has(slot), "slot {} of {} is empty", slot, slots_);
    words_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
    --size_;
  }
  // Any slot of the set, searched from the last result on: O(1) amortized for a caller that
  // removes each result. REQUIRES: size() > 0.
  std::uint32_t Any() {
    while (words_[cursor_] == 0) cursor_ = (cursor_ + 1) % words_.size();
    return std::uint32_t(cursor_ * 64) + std::uint32_t(__builtin_ctzll(words_[cursor_]));
  }
  std::int64_t size() const { return size_; }

 private:
  static std::size_t Words(std::int64_t slots) { return std::size_t(slots + 63) / 64; }
  std::int64_t slots_ = 0, size_ = 0;
  std::size_t cursor_ = 0;  // word that the last Any found
  HugeArray<std::uint64_t> words_;
};

}  // namespace troop::internal
