#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "replay/storage/huge_array.h"

namespace troop::internal {

// Slots ordered by rank, smallest first; of equal ranks the smaller order first. A 4-ary heap,
// whose children lie in one or two cache lines, with the position of each slot. Owner: one
// selector. Cost: O(log n) per change; 20 bytes per slot.
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
  void SetRank(std::uint32_t slot, float rank);       // REQUIRES: Has(slot); keeps the order
  void Remove(std::uint32_t slot);                    // REQUIRES: Has(slot)
  const Entry& first() const { return entries_[0]; }  // REQUIRES: size() > 0
  // The first slot.size() slots in order. O(n log n) in slot.size() alone. REQUIRES: size() >=
  // that.
  void First(std::span<std::uint32_t> slot);
  std::int64_t size() const { return size_; }

 private:
  // Rise and Sink move `entry` from `place` toward the root or the leaves and store it.
  void Put(std::int64_t place, const Entry& entry);
  void Rise(std::int64_t place, const Entry& entry);
  void Sink(std::int64_t place, const Entry& entry);

  HugeArray<Entry> entries_;        // [0, size_)
  HugeArray<std::uint32_t> place_;  // index of each slot in entries_, plus 1; 0: absent
  std::int64_t size_ = 0;
  std::vector<std::int64_t> open_;  // scratch of First
};

}  // namespace troop::internal
