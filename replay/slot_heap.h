#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "replay/big_array.h"

namespace troop::internal {

// Slots by rank, the smallest first; of equals the one of the smaller order. A heap of four
// children a node, which lie in one or two cache lines, with the place of each slot. Owner: one
// selector. Cost: O(log n) a change; 20 bytes a slot.
class SlotHeap {
 public:
  struct Entry {
    float rank = 0;
    std::uint32_t slot = 0;
    std::uint64_t order = 0;
    bool Before(const Entry& other) const {
      return rank < other.rank || (rank == other.rank && order < other.order);
    }
  };
  static Result<SlotHeap> Make(std::int64_t slots);
  static std::size_t Bytes(std::int64_t slots);

  bool Has(std::uint32_t slot) const { return slot < place_.size() && place_[slot] != 0; }
  void Add(const Entry& entry);                       // REQUIRES: !Has(entry.slot)
  void SetRank(std::uint32_t slot, float rank);       // REQUIRES: Has(slot); the order stays
  void Remove(std::uint32_t slot);                    // REQUIRES: Has(slot)
  const Entry& first() const { return entries_[0]; }  // REQUIRES: size() > 0
  // The first slot.size() of them in order. O(n log n) of slot.size() alone. REQUIRES: so many.
  void First(std::span<std::uint32_t> slot);
  std::int64_t size() const { return size_; }

 private:
  void Put(std::int64_t place, const Entry& entry);
  void Rise(std::int64_t place, const Entry& entry);
  void Sink(std::int64_t place, const Entry& entry);

  BigArray<Entry> entries_;        // [0, size_)
  BigArray<std::uint32_t> place_;  // of each slot in entries_, from 1; 0: not there
  std::int64_t size_ = 0;
  std::vector<std::int64_t> open_;  // scratch of First
};

}  // namespace troop::internal
