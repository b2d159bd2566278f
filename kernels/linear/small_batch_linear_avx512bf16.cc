// bf16 loops of small_batch_linear.h with vdpbf16ps, which adds two products to each f32 lane. So
// operands are paired along the axis of summation: adjacent elements of a row, or two interleaved
// rows. The tilings are those of small_batch_linear_impl.h.
#include "kernels/linear/small_batch_linear_table.h"
#include "kernels/simd/vec.h"

namespace troop {
namespace {

constexpr std::int64_t kPairLanes = 32;  // bf16 per register
constexpr int kDotRows = 4, kDotOutputs = 6;
constexpr int kSumRows = 6, kSumVectors = 2;  // vectors of 32 bf16, two registers of sums each
// elements of a row, and rows of b, that stay in L1
constexpr std::int64_t kDotBlock = 2048;
constexpr std::int64_t kSumBlock = 128;
// Outer tiles as in small_batch_linear_impl.h; a register holds a pair of elements of each of 16
// rows.
constexpr int kOuterVectors = 2, kOuterOutputs = 12;
constexpr std::int64_t kOuterColumns = 16 * kOuterVectors;
constexpr std::int64_t kOuterRowsMin = kOuterColumns * 3 / 4;
static_assert(kOuterColumns <= kNarrowColumnsMax);
// Prefetch distance of f32 results: stores that miss the caches would fill the store buffer.
constexpr std::int64_t kWriteAhead = 6 * kSumVectors * kPairLanes;

// 32 bits are a pair of bf16; broadcasts and loads use integer types.
inline __m512bh AsPairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }
inline std::int32_t LoadPair(const void* at) {
  std::int32_t pair;
  __builtin_memcpy(&pair, at, sizeof(pair));
  return pair;
}
// Mask of the first n lanes; n may be negative or larger than a register.
inline __mmask32 TailMask(std::int64_t n) {
  if (n <= 0) return 0;
  return n >= kPairLanes ? ~__mmask32{0} : __mmask32((1u << n) - 1);
}

// y[r, o] += x[r, :] · w[o, :] over `n` elements, for a tile of R x O. Meanwhile prefetches the n
// elements at `ahead`.
template <int R, int O>
void DotTile(std::int64_t n, const BF16* x, std::int64_t ldx, const BF16* w, std::int64_t ldw,
             float* y, std::int64_t ldy, const BF16* ahead) {
  __m512 sum[R][O];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) sum[r][o] = _mm512_setzero_ps();
  // One register of the depth: R rows of x times O rows of w. `load` handles a partial last
  // register.
  const auto step = [&](auto load, std::int64_t i) {
    __m512bh rows[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) rows[r] = AsPairs(load(x + r * ldx + i));
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) {
      const __m512bh v = AsPairs(load(w + o * ldw + i));
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sum[r][o] = _mm512_dpbf16_ps(sum[r][o], rows[r], v);
    }
  };
  std::int64_t i = 0;
  for (; i + kPairLanes <= n; i += kPairLanes) {
    __builtin_prefetch(ahead + i);
    step([](const BF16* p) { return _mm512_loadu_si512(p); }, i);
  }
  if (i < n) {
    const __mmask32 mask = TailMask(n - i);
    step([mask](const BF16* p) { return _mm512_maskz_loadu_epi16(mask, p); }, i);
  }
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o) {
    // Sum the lanes: Sum4 handles four registers at once.
    if constexpr (R == 4) {
      const Quad sums = Sum4({sum[0][o]}, {sum[1][o]}, {sum[2][o]}, {sum[3][o]});
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) y[r * ldy + o] += sums[r];
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) y[r * ldy + o] += _mm512_reduce_add_ps(sum[r][o]);
    }
  }
}

// One block of O rows of w times all rows of x. next: the O rows of w that are used after these;
// each pass over w prefetches one of them, so that loads overlap with computation.
template <int O>
void DotRows(std::int64_t batch, std::int64_t n, const BF16* x, std::int64_t ldx, const BF16* w,
             std::int64_t ldw, float* y, std::int64_t ldy, const BF16* next) {
  std::int64_t r = 0;
  int pass = 0;
  // Row of `next` to prefetch in this pass; w itself when all rows have been prefetched.
  const auto ahead = [&] { return pass < O ? next + pass++ * ldw : w; };
  for (; r + kDotRows <= batch; r += kDotRows)
    DotTile<kDotRows, O>(n, x + r * ldx, ldx, w, ldw, y + r * ldy, ldy, ahead());
  for (; r < batch; ++r) DotTile<1, O>(n, x + r * ldx, ldx, w, ldw, y + r * ldy, ldy, ahead());
}

// Starts y from the bias, then adds the products block by block along the depth.
void DotForward(const LinearShape& shape, std::int64_t batch, const BF16* weight, const float* bias,
                const BF16* x, float* y) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t o = 0; o < shape.out; ++o) y[b * shape.out + o] = bias[o];
  const std::int64_t blocks = (shape.in + kDotBlock - 1) / kDotBlock;
  const std::int64_t block =
      ((shape.in + blocks - 1) / blocks + kPairLanes - 1) / kPairLanes * kPairLanes;
  std::int64_t o = 0;
  const auto rows = [&](auto run, int outputs) {
    for (std::int64_t i = 0; i < shape.in; i += block) {
      const std::int64_t n = shape.in - i < block ? shape.in - i : block;
      const BF16* const w = weight + o * shape.in + i;
      // The next block of these rows, or the first block of the next rows.
      const BF16* const next = i + block < shape.in ? w + block : w - i + outputs * shape.in;
      run(batch, n, x + i, shape.in, w, shape.in, y + o, shape.out, next);
    }
  };
  for (; o + kDotOutputs <= shape.out; o += kDotOutputs) rows(DotRows<kDotOutputs>, kDotOutputs);
  for (; o < shape.out; ++o) rows(DotRows<1>, 1);
}

// turned [in / 2, kOuterColumns] = xᵀ in pairs, for `rows` rows; the other columns are 0.
void Turn(std::int64_t rows, std::int64_t in, const BF16* x, std::int32_t* turned) {
  constexpr std::int64_t kBlock = 16;  // a cache line of x
  for (std::int64_t p = 0; p < in / 2; p += kBlock) {
    const std::int64_t end = in / 2 - p < kBlock ? in / 2 : p + kBlock;
    for (std::int64_t r = 0; r < kOuterColumns; ++r) {
      for (std::int64_t q = p; q < end; ++q)
        turned[q * kOuterColumns + r] = r < rows ? LoadPair(x + r * in + 2 * q) : 0;
    }
  }
}

// y[r, o] = x[r, :] · w[o, :] + bias[o] for O outputs and `rows` rows of x, which is transposed in
// `turned`.
template <int O>
void OuterTile(std::int64_t in, std::int64_t rows, const std::int32_t* turned, const BF16* w,
               const float* bias, float* y, std::int64_t ldy) {
  __m512 sum[O][kOuterVectors];
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o)
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v) sum[o][v] = _mm512_set1_ps(bias[o]);
  for (std::int64_t i = 0; i < in; i += 2) {
    __m512bh xs[kOuterVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v)
      xs[v] = AsPairs(_mm512_loadu_si512(turned + i / 2 * kOuterColumns + v * 16));
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) {
      // One broadcast pair of weights times a register of pairs of rows.
      const __m512bh wi = AsPairs(_mm512_set1_epi32(LoadPair(w + o * in + i)));
#pragma GCC unroll 16
      for (int v = 0; v < kOuterVectors; ++v) sum[o][v] = _mm512_dpbf16_ps(sum[o][v], wi, xs[v]);
    }
  }
  float tile[O][kOuterColumns];
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o)
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v) _mm512_storeu_ps(tile[o] + v * 16, sum[o][v]);
  for (std::int64_t r = 0; r < rows; ++r)
    for (int o = 0; o < O; ++o) y[r * ldy + o] = tile[o][r];
}

// Outer tiles while enough rows are left (pairs need an even depth), dot products for the rest.
void Forward(const LinearShape& shape, std::int64_t batch, const BF16* weight, const float* bias,
             const BF16* x, float* scratch, float* y) {
  auto* const turned = reinterpret_cast<std::int32_t*>(scratch);
  for (; batch >= kOuterRowsMin && shape.in % 2 == 0; batch -= kOuterColumns) {
    const std::int64_t rows = batch < kOuterColumns ? batch : kOuterColumns;
    Turn(rows, shape.in, x, turned);
    const auto run = [&](auto tile, std::int64_t o) {
      tile(shape.in, rows, turned, weight + o * shape.in, bias + o, y + o, shape.out);
    };
    std::int64_t o = 0;
    for (; o + kOuterOutputs <= shape.out; o += kOuterOutputs) run(OuterTile<kOuterOutputs>, o);
    for (; o < shape.out; ++o) run(OuterTile<1>, o);
    x += rows * shape.in;
    y += rows * shape.out;
  }
  if (batch > 0) DotForward(shape, batch, weight, bias, x, y);
}

// Operands of c[m, n] (+)= Σ_k a(m, k) * b[k, n]. Pair p of row m of a is the 32 bits at a + m * am
// + p * ap; if `depth` is odd, the second half of the last pair is ignored.
struct SumOperands {
  const char* a = nullptr;
  std::int64_t am = 0, ap = 0;  // bytes
  const BF16* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

// Restores the order of columns after the interleaving in SumTile.
inline void Straighten(__m512 low, __m512 high, __m512* first, __m512* second) {
  const __m512i from_first =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i from_second =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  *first = _mm512_permutex2var_ps(low, from_first, high);
  *second = _mm512_permutex2var_ps(low, from_second, high);
}

// A tile of M rows and V vectors, of which `columns` columns are valid.
template <int M, int V>
void SumTile(const SumOperands& t, std::int64_t depth, std::int64_t columns, bool add) {
  __m512 sum[M][V][2];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[m][v][0] = sum[m][v][1] = _mm512_setzero_ps();
  __mmask32 mask[V];
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) mask[v] = TailMask(columns - v * kPairLanes);
  // Two rows of b: interleaved into pairs, then multiplied by broadcast pairs of a.
  const auto step = [&](std::int64_t k, const auto& load_odd, const auto& load_a) {
    __m512bh b[V][2];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const BF16* const row = t.b + k * t.ldb + v * kPairLanes;
      const __m512i even = _mm512_maskz_loadu_epi16(mask[v], row), odd = load_odd(row, mask[v]);
      // Interleaves two rows within 128-bit lanes: the first register has columns 0-3, 8-11, 16-19,
      // 24-27, the second the others.
      b[v][0] = AsPairs(_mm512_unpacklo_epi16(even, odd));
      b[v][1] = AsPairs(_mm512_unpackhi_epi16(even, odd));
    }
    const char* a_at = t.a + k / 2 * t.ap;
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m, a_at += t.am) {
      const __m512bh a = AsPairs(_mm512_set1_epi32(load_a(a_at)));
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        sum[m][v][0] = _mm512_dpbf16_ps(sum[m][v][0], a, b[v][0]);
        sum[m][v][1] = _mm512_dpbf16_ps(sum[m][v][1], a, b[v][1]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2) {
    step(
        k, [&](const BF16* row, __mmask32 m) { return _mm512_maskz_loadu_epi16(m, row + t.ldb); },
        [](const char* at) { return LoadPair(at); });
  }
  if (k < depth) {  // the last row has no partner
    step(
        k, [](const BF16*, __mmask32) { return _mm512_setzero_si512(); },
        [](const char* at) {
          std::uint16_t half;
          __builtin_memcpy(&half, at, 2);
          return std::int32_t(half);
        });
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      // Restore the order of columns, then store.
      __m512 parts[2];
      Straighten(sum[m][v][0], sum[m][v][1], &parts[0], &parts[1]);
#pragma GCC unroll 16
      for (int h = 0; h < 2; ++h) {
        float* const c = t.c + m * t.ldc + v * kPairLanes + 16 * h;
        const auto keep = __mmask16(mask[v] >> (16 * h));
        if (add) parts[h] = _mm512_add_ps(parts[h], _mm512_maskz_loadu_ps(keep, c));
        _mm512_mask_storeu_ps(c, keep, parts[h]);
      }
    }
  }
}

// `rows` rows of c: tiles of kSumRows, then of two rows, then of one.
void SumRows(SumOperands t, std::int64_t rows, std::int64_t depth, std::int64_t columns, bool add) {
  std::int64_t m = 0;
  // Advances to the next rows of a and c.
  const auto next = [&](int count) {
    t.a += count * t.am;
    t.c += count * t.ldc;
    m += count;
  };
  while (m + kSumRows <= rows)
    SumTile<kSumRows, kSumVectors>(t, depth, columns, add), next(kSumRows);
  while (m + 2 <= rows) SumTile<2, kSumVectors>(t, depth, columns, add), next(2);
  while (m < rows) SumTile<1, kSumVectors>(t, depth, columns, add), next(1);
}

inline std::int64_t SumColumns(std::int64_t left) {
  return left < kSumVectors * kPairLanes ? left : kSumVectors * kPairLanes;
}

// dx is the sum over blocks of kSumBlock outputs; the first block overwrites it.
void BackwardData(const LinearShape& shape, std::int64_t batch, const BF16* weight, const BF16* dz,
                  float* dx) {
  for (std::int64_t o = 0; o < shape.out; o += kSumBlock) {
    const std::int64_t depth = shape.out - o < kSumBlock ? shape.out - o : kSumBlock;
    for (std::int64_t i = 0; i < shape.in; i += kSumVectors * kPairLanes) {
      // Consecutive pieces of one row are far apart in this order, so no hardware prefetcher finds
      // them.
      for (std::int64_t k = 0; k < depth; ++k) {
        const BF16* const next = weight + (o + k) * shape.in + i + kSumVectors * kPairLanes;
        for (int v = 0; v < kSumVectors; ++v) __builtin_prefetch(next + v * kPairLanes);
      }
      // a = dz: adjacent outputs of an item are a pair.
      SumRows({reinterpret_cast<const char*>(dz + o), shape.out * 2, 4, weight + o * shape.in + i,
               shape.in, dx + i, shape.in},
              batch, depth, SumColumns(shape.in - i), o > 0);
    }
  }
}

// pairs [⌈batch / 2⌉, out]: dz of two consecutive items for the same output as a 32-bit pair. db
// (+)= Σ dz.
void PairItems(const LinearShape& shape, std::int64_t batch, const BF16* dz, std::int32_t* pairs,
               float* db, bool accumulate) {
  for (std::int64_t b = 0; b < batch; b += 2) {
    for (std::int64_t o = 0; o < shape.out; o += 16) {
      const auto mask = static_cast<__mmask16>(TailMask(shape.out - o));
      const BF16* const at = dz + b * shape.out + o;
      const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at));
      const __m512i odd =
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
                                b + 1 < batch ? mask : __mmask16{0}, at + shape.out)),
                            16);
      _mm512_mask_storeu_epi32(pairs + b / 2 * shape.out + o, mask, _mm512_or_si512(even, odd));
      const __m512 both =
          _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(even, 16)), _mm512_castsi512_ps(odd));
      const __m512 before =
          _mm512_maskz_loadu_ps(b > 0 || accumulate ? mask : __mmask16{0}, db + o);
      _mm512_mask_storeu_ps(db + o, mask, _mm512_add_ps(before, both));
    }
  }
}

void BackwardWeight(const LinearShape& shape, std::int64_t batch, const BF16* x, const BF16* dz,
                    float* scratch, float* dw, float* db, bool accumulate) {
  auto* const pairs = reinterpret_cast<std::int32_t*>(scratch);
  PairItems(shape, batch, dz, pairs, db, accumulate);
  // A few rows of dw at a time, so that each row is written from front to back.
  for (std::int64_t o = 0; o < shape.out; o += kSumRows) {
    const std::int64_t rows = shape.out - o < kSumRows ? shape.out - o : kSumRows;
    for (std::int64_t i = 0; i < shape.in; i += kSumVectors * kPairLanes) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const ahead = dw + (o + r) * shape.in + i + kWriteAhead;
        for (int line = 0; line < kSumVectors * kPairLanes; line += 16)
          __builtin_prefetch(ahead + line, 1);
      }
      // a = dzᵀ from `pairs`: two items of an output are a pair.
      SumRows({reinterpret_cast<const char*>(pairs + o), 4, shape.out * 4, x + i, shape.in,
               dw + o * shape.in + i, shape.in},
              rows, batch, SumColumns(shape.in - i), accumulate);
    }
  }
}

}  // namespace

namespace avx512bf16 {
const NarrowKernels<BF16> kNarrowKernels = {Forward, BackwardData, BackwardWeight};
}  // namespace avx512bf16

}  // namespace troop
