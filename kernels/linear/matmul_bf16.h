#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/matmul.h"

// How the bf16 product is cut up (Goto & van de Geijn 2008): blocks of b [depth, columns] and of a
// [rows, depth] are packed as pairs along the depth, 32 bits each, and multiplied tile by tile.
namespace troop {

inline constexpr std::int64_t kTileRows = 14, kTileColumns = 32;  // 28 registers of sums
inline constexpr std::int64_t kLanes = 16;      // pairs of a register; a panel of a has 2 spare
inline constexpr std::int64_t kDepthMax = 256;  // a panel of b and one of a fit 32 KB of L1
inline constexpr std::int64_t kRowsMax = 16 * kTileRows;  // 140 KB of a in the second level
inline constexpr std::int64_t kColumnsMax = 3072;         // 1.6 MB of b in the third

inline std::int64_t RoundUp(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
inline std::int64_t AtMost(std::int64_t n, std::int64_t most) { return n < most ? n : most; }

struct MatMulBlocks {
  std::int64_t depth, rows, columns;  // of a block
  std::size_t a_words() const {
    return static_cast<std::size_t>(RoundUp(rows, kTileRows) / kTileRows * kLanes * depth / 2);
  }
  std::size_t b_words() const {
    return static_cast<std::size_t>(RoundUp(columns, kTileColumns) * depth / 2);
  }
};
// Depths are shared out evenly, so that none is short.
inline MatMulBlocks BlocksOf(const MatMulShape& shape) {
  const std::int64_t cuts = (shape.k + kDepthMax - 1) / kDepthMax;
  return {RoundUp((shape.k + cuts - 1) / cuts, 2 * kLanes), AtMost(shape.m, kRowsMax),
          AtMost(shape.n, kColumnsMax)};
}

// Leading dimensions are set. packed: a_words() and b_words() of 32 bits, 64-byte aligned.
void MatMulAvx512Bf16(const MatMulShape& shape, const float* a, const float* b, float beta,
                      float* c, std::uint32_t* packed_a, std::uint32_t* packed_b);

}  // namespace troop
