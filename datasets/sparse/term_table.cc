// Implements the hash table of terms, and its hash.

#include "datasets/sparse/term_table.h"

#include <bit>
#include <cstring>
#include <utility>

namespace troop {
namespace {

// A power of two, as each doubling needs.
constexpr std::size_t kFirstSlots = 1024;

// The scrambling of a block; its constants are those of the reference implementation.
std::uint32_t Mixed(std::uint32_t k) { return std::rotl(k * 0xcc9e2d51U, 15) * 0x1b873593U; }

}  // namespace

// Reads blocks of four bytes in little-endian order.
std::uint32_t MurmurHash3(std::string_view bytes) {
  std::uint32_t h = 0;
  const std::size_t blocks = bytes.size() / 4;
  for (std::size_t i = 0; i < blocks; ++i) {
    std::uint32_t k = 0;
    std::memcpy(&k, bytes.data() + 4 * i, 4);
    h = std::rotl(h ^ Mixed(k), 13) * 5 + 0xe6546b64U;
  }
  // The last one to three bytes.
  std::uint32_t tail = 0;
  for (std::size_t i = bytes.size(); i-- > 4 * blocks;)
    tail = tail << 8 | static_cast<unsigned char>(bytes[i]);
  h ^= Mixed(tail);
  h ^= std::uint32_t(bytes.size());
  h = (h ^ h >> 16) * 0x85ebca6bU;
  h = (h ^ h >> 13) * 0xc2b2ae35U;
  return h ^ h >> 16;
}

TermTable::TermTable() : slots_(kFirstSlots) {}

// The slot of the term, or the free one where it belongs. Equal hashes are rare, so that the bytes
// are compared about once.
std::size_t TermTable::Place(std::string_view wanted, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && term(slots_[at].id) == wanted) break;
  }
  return at;
}

// A free slot has the id -1.
std::int32_t TermTable::Find(std::string_view term) const {
  return slots_[Place(term, MurmurHash3(term))].id;
}

// Grows before the table is more than half full, so that a search ends soon.
std::int32_t TermTable::Insert(std::string_view term) {
  const std::uint32_t hash = MurmurHash3(term);
  const std::size_t at = Place(term, hash);
  if (slots_[at].id >= 0) return slots_[at].id;
  const auto id = std::int32_t(size());
  slots_[at] = {hash, id};
  bytes_.insert(bytes_.end(), term.begin(), term.end());
  begins_.push_back(bytes_.size());
  if (2 * begins_.size() > slots_.size()) Grow();
  return id;
}

// Doubles the slots. The hashes are stored, so no term is read.
void TermTable::Grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : before) {
    if (slot.id < 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].id >= 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}  // namespace troop
