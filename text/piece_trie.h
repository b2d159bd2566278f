#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// Strings of bytes, each with a number and a weight, found from their front byte by byte: a double
// array (Aoe 1989), one comparison a byte. Immutable once made: any thread. 16 bytes a node, so
// that none lies in two cache lines; making it is O(bytes of all strings) and takes some 10 ms for
// 30,000 pieces.
class PieceTrie {
 public:
  static constexpr std::int32_t kRoot = 0;
  static constexpr std::int32_t kNone = -1;
  static constexpr std::size_t kBytesMax = 1024;  // of a string: making a trie recurses so deep

  struct Entry {
    std::string_view text;
    std::int32_t value = 0;
    float weight = 0;
  };

  PieceTrie() : nodes_(1) {}
  // Errors: kInvalidArgument where a string is empty, too long, or stands there twice.
  static Result<PieceTrie> Make(std::vector<Entry> entries);

  // The node behind `node` by `byte`, or kNone.
  std::int32_t Next(std::int32_t node, char byte) const {
    const std::uint32_t next = std::uint32_t(nodes_[node].base) + static_cast<unsigned char>(byte);
    return next < nodes_.size() && nodes_[next].parent == node ? std::int32_t(next) : kNone;
  }
  // The number of the string that ends at `node`, or kNone.
  std::int32_t value(std::int32_t node) const { return nodes_[node].value; }
  float weight(std::int32_t node) const { return nodes_[node].weight; }

 private:
  struct alignas(16) Node {
    std::int32_t base = 0;  // the child by byte b, if there is one, is node base + b
    std::int32_t parent = kNone;
    std::int32_t value = kNone;
    float weight = 0;
  };
  class Builder;
  std::vector<Node> nodes_;
};

}  // namespace troop
