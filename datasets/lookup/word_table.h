#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troop {

// Hash table of byte strings with a value each: open addressing, at most half full, one cache miss
// for the entry and one for the text. Immutable after Build: any thread.
class WordTable {
 public:
  // Replaces the content. REQUIRES: the texts differ, values are not negative; at most 2^31 bytes.
  void Build(std::vector<std::pair<std::string_view, std::int32_t>> words);
  // Value of a string; -1: it is not in the table. O(bytes).
  std::int32_t Find(std::string_view word) const;

 private:
  struct Entry {
    std::uint32_t hash = 0;  // upper bits, compared before the text
    std::int32_t value = -1;
    std::uint32_t begin = 0, size = 0;  // in texts_
  };
  std::vector<Entry> entries_;  // a power of two; empty: no words
  std::string texts_;
};

// Hash table of pairs of token ids that merge: open addressing, at most half full. Immutable after
// the last Add: any thread.
class PairTable {
 public:
  static constexpr std::uint32_t kNever = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNever;  // lower ones first; kNever: the pair does not merge
    std::int32_t to = -1;         // id of the merged piece
  };
  // Empties the table and prepares it for `pairs` pairs.
  void Reserve(std::size_t pairs);
  // Adds a pair; false: it is there already. REQUIRES: ids are not negative; Reserve was called
  // with at least the number of pairs.
  bool Add(std::int32_t left, std::int32_t right, Merge merge);
  // Merge of a pair.
  Merge Find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = KeyOf(left, right);
    for (std::size_t at = key * kMix >> shift_;; at = (at + 1) & (entries_.size() - 1)) {
      if (entries_[at].key == key) return entries_[at].merge;
      if (entries_[at].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
  struct Entry {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t KeyOf(std::int32_t left, std::int32_t right) {
    return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
  }

  std::vector<Entry> entries_ = std::vector<Entry>(2);  // a power of two
  int shift_ = 63;                                      // 64 - log2 of its size
};

}  // namespace troop
