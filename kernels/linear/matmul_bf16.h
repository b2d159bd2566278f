#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/matmul.h"

// Blocking of the bf16 product (Goto & van de Geijn 2008). Blocks of b [depth, columns] and of a
// [rows, depth] are packed as pairs along the depth, 32 bits each, and multiplied tile by tile.
namespace troop {

inline constexpr std::int64_t kTileRows = 14, kTileColumns = 32;  // 28 registers of sums
inline constexpr std::int64_t kLanes = 16;      // pairs per register; a panel of a wastes 2
inline constexpr std::int64_t kDepthMax = 256;  // a panel of b and one of a fit 32 KB of L1
inline constexpr std::int64_t kRowsMax = 16 * kTileRows;  // 140 KB of a in L2
inline constexpr std::int64_t kColumnsMax = 3072;         // 1.6 MB of b in L3

inline std::int64_t RoundUp(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
inline std::int64_t AtMost(std::int64_t n, std::int64_t most) { return n < most ? n : most; }

// Block sizes of one product, and the 32-bit words that packing a block of a or b takes.
struct MatMulBlocks {
  std::int64_t depth, rows, columns;  // sizes of a block
  std::size_t a_words() const {
    return static_cast<std::size_t>(RoundUp(rows, kTileRows) / kTileRows * kLanes * depth / 2);
  }
  std::size_t b_words() const {
    return static_cast<std::size_t>(RoundUp(columns, kTileColumns) * depth / 2);
  }
};
// Selects the block sizes. The depth is divided evenly, so that the last block is not short.
inline MatMulBlocks BlocksOf(const MatMulShape& shape) {
  const std::int64_t cuts = (shape.k + kDepthMax - 1) / kDepthMax;
  return {RoundUp((shape.k + cuts - 1) / cuts, 2 * kLanes), AtMost(shape.m, kRowsMax),
          AtMost(shape.n, kColumnsMax)};
}

// Arguments of MatMulAvx512Bf16; those of MatMulBF16, and memory for the packed blocks of BlocksOf.
struct MatMulBF16Args {
  MatMulShape shape;                  // REQUIRES: leading dimensions are nonzero
  const float* a = nullptr;           // [m, k], or [k, m] if transposed
  const float* b = nullptr;           // [k, n], or [n, k] if transposed
  float beta = 0;                     // 0 or 1
  float* c = nullptr;                 // [m, n]
  std::uint32_t* packed_a = nullptr;  // [a_words()], 64-byte aligned
  std::uint32_t* packed_b = nullptr;  // [b_words()], 64-byte aligned
};
// The AVX-512 BF16 implementation of MatMulBF16.
void MatMulAvx512Bf16(const MatMulBF16Args& args);

}  // namespace troop
