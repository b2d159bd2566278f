#pragma once

#include <cstdint>
#include <vector>

#include "replay/storage/snapshot.h"

namespace troop {

// The lines of slots (kSlotsPerLine slots each) that changed since a snapshot took them. Owner: one
// thread (an ItemSlots). One bit per line.
class DirtyLines {
 public:
  // No line is dirty. With 0 slots nothing is tracked, for tables without a journal.
  explicit DirtyLines(std::int64_t slots)
      : bits_(std::size_t((slots + kSlotsPerLine - 1) / kSlotsPerLine + 63) / 64) {}

  // Marks the line of a slot. O(1).
  void Mark(std::uint32_t slot) {
    if (bits_.empty()) return;
    const std::size_t line = slot / kSlotsPerLine;
    bits_[line / 64] |= std::uint64_t{1} << (line % 64);
  }
  // Takes the next dirty line, round robin, so that each line has its turn however often others
  // change; -1: none.
  std::int64_t Take();
  std::int64_t count() const;  // O(lines / 64)

 private:
  std::vector<std::uint64_t> bits_;  // one per line
  std::uint64_t cursor_ = 0;         // line at which the next search begins
};

}  // namespace troop
