#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troop {

// Distinct strings with the ids 0, 1, … in the order of their insertion: a hash table with open
// addressing whose bytes lie end to end, since a vocabulary of n-grams has millions of terms. One
// owner; Find may be called by any number of threads while nothing is inserted.
class TermTable {
 public:
  TermTable();
  // Returns the id of a term, which is added if it is not there. Amortized O(bytes). REQUIRES:
  // fewer than 2^31 terms.
  std::int32_t Insert(std::string_view term);
  // Returns the id of a term; -1: it is not there. O(bytes).
  std::int32_t Find(std::string_view term) const;
  // The term of an id, valid until the next Insert.
  std::string_view term(std::int32_t id) const {
    const std::size_t begin = begins_[std::size_t(id)];
    return {bytes_.data() + begin, begins_[std::size_t(id) + 1] - begin};
  }
  std::int64_t size() const { return std::int64_t(begins_.size()) - 1; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;  // -1: free
  };
  std::size_t Place(std::string_view term, std::uint32_t hash) const;
  void Grow();

  std::vector<char> bytes_;
  std::vector<std::size_t> begins_ = {0};  // [size + 1]
  std::vector<Slot> slots_;                // a power of two, at most half of them used
};

// 32-bit MurmurHash3 with seed 0 (Appleby 2011), scikit-learn's hash of features.
std::uint32_t MurmurHash3(std::string_view bytes);

}  // namespace troop
