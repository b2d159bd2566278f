// bf16 product with vdpbf16ps (blocking: matmul_bf16.h). Blocks of b and a are rounded and packed
// as pairs along the depth, then multiplied in tiles of 14 x 32.
#include "kernels/linear/matmul_bf16.h"
#include "kernels/simd/vec.h"

namespace troop {
namespace {

inline __m512bh AsPairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }
inline __m512i Round(__m512 low, __m512 high) {  // 32 bf16, `low` first; ties to even
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
// Mask of the first n lanes; n may be negative or larger than 16.
inline __mmask16 First(std::int64_t n) {
  return n >= 16 ? __mmask16{0xffff} : n <= 0 ? __mmask16{0} : __mmask16((1u << n) - 1);
}

// An operand as [width, depth], where width is the rows of a or the columns of b: element (w, d) is
// data[w * width_step + d * depth_step]. One of the steps is 1.
struct Operand {
  const float* data;
  std::int64_t width_step, depth_step;
  const float* At(std::int64_t w, std::int64_t d) const {
    return data + w * width_step + d * depth_step;
  }
};

// Transposes 16 x 16 words of 32 bits in four rounds, with lanes of 32, 64, 128 and 256 bits.
inline void Transpose(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Packs up to 16 neighbors along the width, from `w` on, as pairs along the depth, from `d` on:
// out[p * stride + i] holds elements d + 2 p and d + 2 p + 1 of neighbor i. Elements beyond `width`
// and `depth` are 0. REQUIRES: `pairs` is a multiple of 16.
void PackColumn(const Operand& x, std::int64_t w, std::int64_t width, std::int64_t d,
                std::int64_t depth, std::int64_t pairs, std::int64_t stride, std::uint32_t* out) {
  // Contiguous along the depth: pairs are adjacent, and a transposition brings the neighbors
  // together.
  if (x.depth_step == 1) {
    for (std::int64_t p = 0; p < pairs; p += 16) {
      __m512i r[16];
      const std::int64_t rest = depth - 2 * p;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        r[i] = _mm512_setzero_si512();
        if (i >= width) continue;
        const float* const at = x.At(w + i, d + 2 * p);
        r[i] = Round(_mm512_maskz_loadu_ps(First(rest), at),
                     _mm512_maskz_loadu_ps(First(rest - 16), at + 16));
      }
      Transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + (p + i) * stride, r[i]);
    }
    return;
  }
  // Contiguous along the width: two rows are rounded and interleaved.
  alignas(64) static constexpr std::uint16_t kInterleave[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kInterleave);
  const __mmask16 mask = First(width);
  for (std::int64_t p = 0; p < pairs; ++p) {
    // A row past the depth is read as 0.
    const __mmask16 even = 2 * p < depth ? mask : __mmask16{0};
    const __mmask16 odd = 2 * p + 1 < depth ? mask : __mmask16{0};
    const float* const at = x.At(w, d + 2 * p);
    const __m512i both =
        Round(_mm512_maskz_loadu_ps(even, at), _mm512_maskz_loadu_ps(odd, at + x.depth_step));
    _mm512_storeu_si512(out + p * stride, _mm512_permutexvar_epi16(order, both));
  }
}

// c[rows, columns] of one tile (+)= a · b over `pairs` pairs.
void Tile(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, std::int64_t rows,
          std::int64_t columns, bool add, float* c, std::int64_t ldc) {
  __m512 sum[kTileRows][2];
  // Prefetches c while the sums are computed.
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    if (r < rows)
      __builtin_prefetch(c + r * ldc, 1), __builtin_prefetch(c + r * ldc + columns - 1, 1);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p, a += kLanes, b += kTileColumns) {
    const __m512bh low = AsPairs(_mm512_load_si512(b));
    const __m512bh high = AsPairs(_mm512_load_si512(b + kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      // One broadcast pair of a times two registers of pairs of b.
      const __m512bh pair = AsPairs(_mm512_set1_epi32(static_cast<int>(a[r])));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], pair, low);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], pair, high);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      // Partial tiles are computed in full and stored with masks.
      const __mmask16 keep = r < rows ? First(columns - 16 * h) : __mmask16{0};
      float* const at = c + r * ldc + 16 * h;
      if (add) sum[r][h] = _mm512_add_ps(sum[r][h], _mm512_maskz_loadu_ps(keep, at));
      _mm512_mask_storeu_ps(at, keep, sum[r][h]);
    }
  }
}

// Multiplies the packed block of b by the rows [first, first + rows) of a, which are packed here.
void Rows(const Operand& a, std::int64_t first, std::int64_t rows, std::int64_t d,
          std::int64_t depth, std::int64_t columns, bool add, std::uint32_t* packed_a,
          const std::uint32_t* packed_b, float* c, std::int64_t ldc) {
  // Panels are padded to whole groups of 16 pairs.
  const std::int64_t pairs = RoundUp(depth, 2 * kLanes) / 2;
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    PackColumn(a, first + i, AtMost(rows - i, kTileRows), d, depth, pairs, kLanes,
               packed_a + i / kTileRows * kLanes * pairs);
  }
  for (std::int64_t j = 0; j < columns; j += kTileColumns) {
    for (std::int64_t i = 0; i < rows; i += kTileRows) {
      Tile((depth + 1) / 2, packed_a + i / kTileRows * kLanes * pairs, packed_b + j * pairs,
           AtMost(rows - i, kTileRows), AtMost(columns - j, kTileColumns), add, c + i * ldc + j,
           ldc);
    }
  }
}

}  // namespace

void MatMulAvx512Bf16(const MatMulBF16Args& args) {
  const auto& [s, a, b, beta, c, packed_a, packed_b] = args;
  // The width of a is its rows, that of b its columns.
  const Operand left = s.transpose_a ? Operand{a, 1, s.lda} : Operand{a, s.lda, 1};
  const Operand right = s.transpose_b ? Operand{b, s.ldb, 1} : Operand{b, 1, s.ldb};
  const MatMulBlocks blocks = BlocksOf(s);
  // Loop order: columns of b > depth (pack b) > rows of a (pack a, multiply).
  for (std::int64_t j = 0; j < s.n; j += blocks.columns) {
    const std::int64_t columns = AtMost(s.n - j, blocks.columns);
    for (std::int64_t d = 0; d < s.k; d += blocks.depth) {
      const std::int64_t depth = AtMost(s.k - d, blocks.depth);
      const std::int64_t pairs = RoundUp(depth, 2 * kLanes) / 2;
      // Two packed columns of 16 make a panel of kTileColumns.
      for (std::int64_t w = 0; w < RoundUp(columns, kTileColumns); w += kLanes) {
        PackColumn(right, j + w, columns - w, d, depth, pairs, kTileColumns,
                   packed_b + w / kTileColumns * kTileColumns * pairs + w % kTileColumns);
      }
      for (std::int64_t i = 0; i < s.m; i += blocks.rows) {
        Rows(left, i, AtMost(s.m - i, blocks.rows), d, depth, columns, beta != 0 || d > 0, packed_a,
             packed_b, c + i * s.ldc + j, s.ldc);
      }
    }
  }
}

}  // namespace troop
