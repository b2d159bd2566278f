// Weight gradient of a convolution with vdpbf16ps, which adds two products to each f32 lane. So
// output positions are processed in pairs:
//   dw[o, r, j] = Σ_pairs dz[even, o] · x[even, r, j] + dz[odd, o] · x[odd, r, j]
// A kernel row covers `kernel · channels` contiguous elements of x; j indexes them.
#include "kernels/conv/conv2d_weight_gradient_tiling.h"
#include "kernels/simd/vec.h"

namespace troop {
namespace {

constexpr std::int64_t kColumns = 32;  // bf16 per register

// 32 bits are a pair of bf16.
inline __m512bh AsPairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// position[i]: offset in an item of x of the elements for output position i. The list continues
// into the next item, for prefetching.
void FillPositions(const ConvGradientPlan& plan, std::int32_t* position) {
  const ConvShape& s = plan.shape;
  for (std::int64_t p = 0; p < s.out_height(); ++p) {
    for (std::int64_t q = 0; q < s.out_width(); ++q)
      *position++ = std::int32_t((p * s.width + q) * s.stride * s.channels);
  }
  for (int i = 0; i < kGradientAhead; ++i)
    position[i] = position[i - plan.positions] + std::int32_t(plan.item);
}

// Writes pairs [items, plan.pairs, kGradientFilters]: dz of two consecutive positions as a 32-bit
// pair, for `filters` filters. db (+)= Σ dz. An odd last position is paired with 0.
void PairPositions(const ConvGradientPlan& plan, std::int64_t items, const BF16* dz,
                   std::int64_t filters, std::int32_t* pairs, float* db, bool add) {
  const std::int64_t row = plan.shape.filters;
  const auto mask = static_cast<__mmask8>((1u << filters) - 1);
  __m256 sum = add ? _mm256_maskz_loadu_ps(mask, db) : _mm256_setzero_ps();
  for (std::int64_t i = 0; i < items; ++i, dz += plan.positions * row) {
    for (std::int64_t p = 0; p < plan.positions; p += 2, pairs += kGradientFilters) {
      const BF16* const at = dz + p * row;
      const __mmask8 second = p + 1 < plan.positions ? mask : __mmask8{0};
      const __m256i even = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, at));
      const __m256i odd =
          _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(second, at + row)), 16);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), _mm256_or_si256(even, odd));
      sum = _mm256_add_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32(even, 16)));
      sum = _mm256_add_ps(sum, _mm256_castsi256_ps(odd));
    }
  }
  _mm256_mask_storeu_ps(db, mask, sum);
}

// Restores the order of columns after the interleaving in Tile.
inline void Straighten(__m512 low, __m512 high, __m512* first, __m512* second) {
  const __m512i from_first =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i from_second =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  *first = _mm512_permutex2var_ps(low, from_first, high);
  *second = _mm512_permutex2var_ps(low, from_second, high);
}

// dw[0 .. filters, 0 .. columns] (+)= the sums over `items` items. The sums of 8 filters x 32
// columns stay in registers.
void Tile(const ConvGradientPlan& plan, std::int64_t items, const std::int32_t* position,
          const BF16* x, std::int64_t columns, const std::int32_t* dz, std::int64_t filters,
          float* dw, bool add) {
  constexpr int kFilters = int(kGradientFilters);
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << columns) - 1);
  __m512 sum[kFilters][2];
#pragma GCC unroll 16
  for (int f = 0; f < kFilters; ++f) sum[f][0] = sum[f][1] = _mm512_setzero_ps();
  // Adds the products of one pair of positions to all sums.
  const auto step = [&](__m512i even, __m512i odd) {
    // Interleaves within 128-bit lanes: `low` has columns 0-3, 8-11, 16-19, 24-27, `high` the
    // others.
    const __m512bh low = AsPairs(_mm512_unpacklo_epi16(even, odd));
    const __m512bh high = AsPairs(_mm512_unpackhi_epi16(even, odd));
#pragma GCC unroll 16
    for (int f = 0; f < kFilters; ++f) {
      const __m512bh pair = AsPairs(_mm512_set1_epi32(dz[f]));
      sum[f][0] = _mm512_dpbf16_ps(sum[f][0], pair, low);
      sum[f][1] = _mm512_dpbf16_ps(sum[f][1], pair, high);
    }
    dz += kGradientFilters;
  };
  for (std::int64_t i = 0; i < items; ++i, x += plan.item) {
    std::int64_t p = 0;
    for (; p + 2 <= plan.positions; p += 2) {
      __builtin_prefetch(x + position[p + kGradientAhead]);
      __builtin_prefetch(x + position[p + kGradientAhead + 1]);
      step(_mm512_maskz_loadu_epi16(mask, x + position[p]),
           _mm512_maskz_loadu_epi16(mask, x + position[p + 1]));
    }
    if (p < plan.positions)  // no partner; memory after it may hold anything
      step(_mm512_maskz_loadu_epi16(mask, x + position[p]), _mm512_setzero_si512());
  }
  // Restore the order of columns, then store.
  const std::int64_t row = plan.shape.kernel * plan.shape.kernel * plan.shape.channels;
#pragma GCC unroll 16
  for (int f = 0; f < kFilters; ++f) {
    __m512 part[2];
    Straighten(sum[f][0], sum[f][1], &part[0], &part[1]);
#pragma GCC unroll 16
    for (int h = 0; h < 2; ++h) {
      // Partial tiles are computed in full and stored with masks.
      const auto keep = static_cast<__mmask16>(f < filters ? mask >> (16 * h) : 0);
      float* const at = dw + f * row + 16 * h;
      if (add) part[h] = _mm512_add_ps(part[h], _mm512_maskz_loadu_ps(keep, at));
      _mm512_mask_storeu_ps(at, keep, part[h]);
    }
  }
}

}  // namespace

void ConvGradientAvx512Bf16(const ConvGradientArgs& args) {
  const auto& [shape, batch, x, dz, scratch, dw, db, accumulate] = args;
  const ConvGradientPlan plan(shape);
  const std::int64_t n = shape.kernel * shape.channels;  // columns of a kernel row
  auto* const pairs = static_cast<std::int32_t*>(scratch);
  auto* const position = pairs + plan.items * plan.pairs * kGradientFilters;
  FillPositions(plan, position);
  // Block of items > group of filters > kernel row > group of columns.
  for (std::int64_t b = 0; b < batch; b += plan.items) {
    const std::int64_t items = batch - b < plan.items ? batch - b : plan.items;
    const BF16* const x_block = x + b * plan.item;
    const BF16* const dz_block = dz + b * plan.positions * shape.filters;
    // The first block overwrites the gradient unless accumulating.
    const bool add = accumulate || b > 0;
    for (std::int64_t o = 0; o < shape.filters; o += kGradientFilters) {
      const std::int64_t filters =
          shape.filters - o < kGradientFilters ? shape.filters - o : kGradientFilters;
      PairPositions(plan, items, dz_block + o, filters, pairs, db + o, add);
      for (std::int64_t r = 0; r < shape.kernel; ++r) {
        for (std::int64_t j = 0; j < n; j += kColumns) {
          Tile(plan, items, position, x_block + r * shape.width * shape.channels + j,
               n - j < kColumns ? n - j : kColumns, pairs, filters,
               dw + (o * shape.kernel + r) * n + j, add);
        }
      }
    }
  }
}

}  // namespace troop
