// Construction of the double array: places nodes depth first.

#include "datasets/lookup/piece_trie.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace troop {

// Places the children of one node at a time, each group at the first base where all of its bytes
// are free. The nearly full front of the array is skipped.
class PieceTrie::Builder {
 public:
  explicit Builder(std::vector<Node>* nodes) : nodes_(*nodes) {}

  // Places the subtree of `node`. strings: sorted and unique, with a common prefix of `depth` bytes
  // that leads to `node`.
  void Place(std::int32_t node, std::span<const Entry> strings, std::size_t depth) {
    // Sorted strings: the one that ends here comes first.
    if (strings.front().text.size() == depth) {
      nodes_[node].value = strings.front().value;
      nodes_[node].weight = strings.front().weight;
      strings = strings.subspan(1);
    }
    if (strings.empty()) return;
    // Group the strings by their next byte.
    struct Child {
      unsigned char byte;
      std::span<const Entry> strings;
    };
    std::vector<Child> children;
    for (std::size_t begin = 0; begin < strings.size();) {
      const char byte = strings[begin].text[depth];
      std::size_t end = begin + 1;
      while (end < strings.size() && strings[end].text[depth] == byte) ++end;
      children.push_back({static_cast<unsigned char>(byte), strings.subspan(begin, end - begin)});
      begin = end;
    }
    // Reserve all children before any grandchild is placed.
    std::vector<unsigned char> bytes;
    for (const Child& child : children) bytes.push_back(child.byte);
    const std::int32_t base = FindBase(bytes);
    nodes_[node].base = base;
    for (const unsigned char byte : bytes) nodes_[base + byte].parent = node;
    for (const Child& child : children) Place(base + child.byte, child.strings, depth + 1);
  }

 private:
  bool IsFree(std::size_t node) const {
    return node >= nodes_.size() || (node != kRoot && nodes_[node].parent == kNone);
  }

  std::int32_t FindBase(std::span<const unsigned char> bytes) {
    constexpr std::size_t kLookedAtMax = 64;  // bounds the time; costs a few percent of memory
    while (!IsFree(first_free_)) ++first_free_;
    const std::size_t begin = std::max<std::size_t>(first_free_, bytes[0] + 1);
    // `at` is the position of the first child; the base follows from its byte.
    for (std::size_t at = begin;; ++at) {
      if (at == begin + kLookedAtMax) first_free_ = std::max(first_free_, at);
      if (!IsFree(at)) continue;
      const std::size_t base = at - bytes[0];
      if (std::all_of(bytes.begin(), bytes.end(), [&](auto b) { return IsFree(base + b); })) {
        if (base + bytes.back() >= nodes_.size()) nodes_.resize(base + bytes.back() + 1);
        return std::int32_t(base);
      }
    }
  }

  std::vector<Node>& nodes_;
  std::size_t first_free_ = 1;
};

Result<PieceTrie> PieceTrie::Make(std::vector<Entry> entries) {
  // Duplicates become adjacent, and are reported with their values.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.text, a.value) < std::tie(b.text, b.value);
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string_view text = entries[i].text;
    if (text.empty() || text.size() > kBytesMax) {
      return InvalidArgument("piece {} has {} bytes, must have 1 to {}", entries[i].value,
                             text.size(), kBytesMax);
    }
    if (i > 0 && text == entries[i - 1].text) {
      return InvalidArgument("pieces {} and {} are equal: {:?}", entries[i - 1].value,
                             entries[i].value, text);
    }
  }
  PieceTrie trie;
  if (!entries.empty()) Builder(&trie.nodes_).Place(kRoot, entries, 0);
  return trie;
}

}  // namespace troop
