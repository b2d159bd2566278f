// Character map of a SentencePiece model: lookup in the double array of darts-clone.

#include "datasets/lookup/charsmap.h"

#include <cstring>

namespace troop {
namespace {

// Bit fields of a darts-clone unit (github.com/s-yata/darts-clone, "Double-array format").
bool HasLeaf(std::uint32_t unit) { return unit >> 8 & 1; }
std::uint32_t ValueOf(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t LabelOf(std::uint32_t unit) { return unit & (0x80000000 | 0xFF); }
std::uint32_t OffsetOf(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

}  // namespace

// Layout: size of the index (u32), double array (u32 each), replacements that end with a zero byte.
Result<Charsmap> Charsmap::Make(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  std::uint32_t size = 0;
  if (bytes.size() < sizeof size) return DataLoss("a character map of {} bytes", bytes.size());
  std::memcpy(&size, bytes.data(), sizeof size);  // little-endian
  bytes.remove_prefix(sizeof size);
  // The only size in the format: check it before allocating.
  if (size > bytes.size() || size == 0 || size % sizeof(std::uint32_t) != 0) {
    return DataLoss("a character map whose index has {} bytes where {} are left", size,
                    bytes.size());
  }
  map.units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), size);
  map.replacements_ = bytes.substr(size);
  if (!map.replacements_.ends_with('\0')) return DataLoss("a character map without an end");
  return map;
}

// Follows one edge of the trie; false if there is none. Every index is checked against the array.
bool Charsmap::Next(std::size_t* node, char byte, std::uint32_t* unit) const {
  // Node ids are XORed with the label and with the offset, not added.
  const auto label = static_cast<unsigned char>(byte);
  *node ^= label;
  if (*node >= units_.size()) return false;
  *unit = units_[*node];
  if (LabelOf(*unit) != label) return false;
  *node ^= OffsetOf(*unit);
  return true;
}

std::string_view Charsmap::Match(std::string_view text, std::size_t* length) const {
  *length = 0;
  if (units_.empty()) return {};
  // Walks the trie and remembers the last node that has a value.
  std::uint32_t longest = 0, unit = 0;
  std::size_t node = OffsetOf(units_[0]);
  for (std::size_t i = 0; i < text.size() && Next(&node, text[i], &unit); ++i) {
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) break;
    const std::uint32_t value = ValueOf(units_[node]);
    if (value >= replacements_.size()) break;
    longest = value;
    *length = i + 1;
  }
  return *length > 0 ? std::string_view(replacements_.c_str() + longest) : std::string_view();
}

std::string_view Charsmap::MatchShortest(std::string_view text, std::size_t* length) const {
  *length = 0;
  if (units_.empty()) return {};
  std::uint32_t unit = 0;
  std::size_t node = OffsetOf(units_[0]);
  for (std::size_t i = 0; i < text.size() && text[i] != 0 && Next(&node, text[i], &unit); ++i) {
    if (!HasLeaf(unit)) continue;
    const std::uint32_t value = node < units_.size() ? ValueOf(units_[node]) : 0x7FFFFFFF;
    if (value >= replacements_.size()) return {};
    *length = i + 1;
    return replacements_.c_str() + value;
  }
  return {};
}

bool Charsmap::IsFree(char first, char second) const {
  if (units_.empty()) return true;
  // Called for pairs of ASCII bytes, to find those that map to themselves.
  std::uint32_t unit = 0;
  std::size_t node = OffsetOf(units_[0]);
  return !Next(&node, first, &unit) || !Next(&node, second, &unit);
}

}  // namespace troop
