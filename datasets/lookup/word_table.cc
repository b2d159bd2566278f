// Hash tables of byte-level BPE: whole words, and pairs of symbols.

#include "datasets/lookup/word_table.h"

#include <bit>
#include <cstring>

namespace troop {
namespace {

constexpr std::uint64_t kOdd = 0x9FB21C651E98DF25;  // arbitrary bits of equal density

// Multiplies and folds eight bytes at a time; the size distinguishes trailing zeros.
std::uint64_t HashOf(std::string_view text) {
  std::uint64_t hash = text.size() * kOdd;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  };
  // Most words have one such group, or none.
  std::size_t i = 0;
  for (std::uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    mix(word);
  }
  // At most seven bytes are left.
  std::uint64_t rest = 0;
  for (; i < text.size(); ++i) rest = rest << 8 | static_cast<unsigned char>(text[i]);
  mix(rest);
  return hash * kOdd;
}

}  // namespace

// Half of the entries stay free, so that searches are short. Texts are stored one after another.
void WordTable::Build(std::vector<std::pair<std::string_view, std::int32_t>> words) {
  entries_.assign(std::bit_ceil(2 * words.size() + 2), {});
  texts_.clear();
  for (const auto& [text, value] : words) {
    const std::uint64_t hash = HashOf(text);
    std::size_t at = hash & (entries_.size() - 1);
    while (entries_[at].value >= 0) at = (at + 1) & (entries_.size() - 1);
    entries_[at] = {std::uint32_t(hash >> 32), value, std::uint32_t(texts_.size()),
                    std::uint32_t(text.size())};
    texts_ += text;
  }
}

// A free entry ends the search: nothing is ever removed.
std::int32_t WordTable::Find(std::string_view word) const {
  if (entries_.empty()) return -1;
  const std::uint64_t hash = HashOf(word);
  for (std::size_t at = hash & (entries_.size() - 1);; at = (at + 1) & (entries_.size() - 1)) {
    const Entry& entry = entries_[at];
    if (entry.value < 0) return -1;
    if (entry.hash == std::uint32_t(hash >> 32) && entry.size == word.size() &&
        std::memcmp(texts_.data() + entry.begin, word.data(), word.size()) == 0) {
      return entry.value;
    }
  }
}

// The upper bits of a product depend on all bits of the key, so the index is taken from them.
void PairTable::Reserve(std::size_t pairs) {
  // One entry more than twice the number keeps a free one even for no pairs.
  const std::size_t size = std::bit_ceil(2 * pairs + 2);
  entries_.assign(size, {});
  shift_ = 64 - std::countr_zero(size);
}

bool PairTable::Add(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = KeyOf(left, right);
  std::size_t at = key * kMix >> shift_;
  while (entries_[at].key != kEmpty) {
    if (entries_[at].key == key) return false;
    at = (at + 1) & (entries_.size() - 1);
  }
  entries_[at] = {key, merge};
  return true;
}

}  // namespace troop
