#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "learners/gpu/cuda/text_step.h"
#include "nn/cuda/transformer_spec.h"

namespace troop::cuda {

// Batches are padded to a multiple of this number of tokens (and of masked tokens): matrix products
// are planned per size, so few sizes must occur.
inline constexpr std::int64_t kTokenRounding = 64;
// n rounded up to it.
constexpr std::int64_t RoundedTokens(std::int64_t n) {
  return (n + kTokenRounding - 1) / kTokenRounding * kTokenRounding;
}

// A batch as one buffer of 32-bit words, with the offsets of its arrays; contents as in HostTokens
// and DeviceTokens.
struct PackedTokens {
  std::vector<std::uint32_t> words;
  // Tokens grouped by the row of a table (WordTokens, kernels/cuda/ops/embedding.h).
  struct Groups {
    std::int64_t count = 0, row = 0, first = 0, order = 0;
  } ids, by_place;
  std::int64_t id = 0, type = 0, starts = 0, chosen = 0, label = 0, target = 0, weight = 0;
  std::int64_t keys = 0, place = 0;
  std::int64_t tokens = 0, sequences = 0, longest = 0, rows = 0, scattered = 0;
  std::int64_t types = 0;  // token types that occur: 0 … types - 1; 0: `type` is absent
  bool drops = false, weighs = false, placed = false;  // placed: with `place` and `by_place`

  // Appends n words of 0 and returns their offset. Arrays start at multiples of 16 bytes.
  std::int64_t Take(std::int64_t n) {
    const auto at = std::int64_t(words.size());
    words.resize(std::size_t(at + (n + 3) / 4 * 4));
    return at;
  }
  std::int32_t* at(std::int64_t offset) {
    return reinterpret_cast<std::int32_t*>(words.data()) + offset;
  }
};

// Groups tokens by a row of a table, in order of both, with a counting sort, so that the table's
// gradient needs no atomics. With vocabulary slices: only tokens of this rank's slice.
class TokenSorter {
 public:
  explicit TokenSorter(const Share& rows)
      : first_row_(rows.first), begins_(std::size_t(rows.count) + 1) {}
  // index: offset of the tokens' rows, [tokens]. O(tokens + rows).
  PackedTokens::Groups Sort(std::int64_t index, PackedTokens* batch);

 private:
  // Row in this rank's table; nullopt: another rank's token.
  std::optional<std::size_t> RowOf(std::int32_t index) const;
  const std::int64_t first_row_;
  std::vector<std::int32_t> begins_;  // first token of each row, in sorted order
};

// Packs batches with their padding: separate sequences of token id 0, and ignored masked tokens.
// The real outputs do not depend on the padding, and it contributes no gradient. One owner thread.
class TokenPacker {
 public:
  explicit TokenPacker(const TransformerSpec& model);
  // Overwrites *to. O(tokens + vocabulary + positions).
  void Pack(const HostTokens& from, PackedTokens* to);

 private:
  void PackSequences(const HostTokens& from, PackedTokens* to) const;
  void PackPlaces(PackedTokens* to);
  void PackRows(const HostTokens& from, PackedTokens* to) const;

  // Read from the spec, which need not outlive this.
  const bool masked_;
  const std::int64_t length_max_, padding_;
  TokenSorter ids_, places_;
};

}  // namespace troop::cuda
