// DirtyLines: the search for the next dirty line.
#include "replay/items/dirty_lines.h"

#include <bit>

namespace troop {

std::int64_t DirtyLines::Take() {
  // Round robin from the cursor, one 64-bit word at a time; the first word is visited twice, for
  // the bits below the cursor.
  const std::size_t words = bits_.size();
  for (std::size_t i = 0; i <= words && words > 0; ++i) {
    std::uint64_t& word = bits_[cursor_ / 64];
    const std::uint64_t left = word >> (cursor_ % 64);
    if (left != 0) {
      cursor_ += std::uint64_t(std::countr_zero(left));
      const auto line = std::int64_t(cursor_);
      word &= ~(std::uint64_t{1} << (cursor_ % 64));
      cursor_ = (cursor_ + 1) % (words * 64);
      return line;
    }
    cursor_ = (cursor_ / 64 + 1) % words * 64;
  }
  return -1;
}

std::int64_t DirtyLines::count() const {
  std::int64_t count = 0;
  for (const std::uint64_t word : bits_) count += std::popcount(word);
  return count;
}

}  // namespace troop
