#pragma once

#include "kernels/linear/small_batch_linear_table.h"
#include "kernels/simd/vec.h"

// f32 loops of small_batch_linear.h on the registers of vec.h, compiled once per instruction set.
// There are three register tilings:
//   Dot: lanes run along the depth and are summed at the end (forward, few rows);
//   Outer: lanes are rows of x, which is transposed first (forward, from kOuterRowsMin rows on);
//   Sum: lanes are columns of the result, a is broadcast (both backward passes).
namespace troop {
namespace {

constexpr std::int64_t kLanes = Vec::kLanes;
// Register tile sizes. AVX-512 has 32 registers, the other instruction sets 16.
constexpr int kDotRows = kLanes == 16 ? 4 : 2;     // rows of x
constexpr int kDotOutputs = kLanes == 16 ? 6 : 4;  // rows of the weight
// rows and vectors of the result
constexpr int kSumRows = kLanes == 16 ? 8 : 4;
constexpr int kSumVectors = kLanes == 16 ? 3 : 2;
constexpr std::int64_t kDotBlock = 1024;  // elements of a row that stay in L1 during a pass over x
constexpr std::int64_t kSumBlock = 64;    // rows of b that stay in L1 during a pass over a
// With at least kOuterRowsMin rows of x, a register holds one element of each of kOuterColumns
// rows, and no sums across lanes are needed. Fewer rows would waste more than a quarter of the
// lanes.
constexpr int kOuterVectors = 2;
constexpr int kOuterOutputs = kLanes == 16 ? 12 : 6;
constexpr std::int64_t kOuterColumns = kOuterVectors * kLanes;
constexpr std::int64_t kOuterRowsMin = kOuterColumns * 3 / 4;
static_assert(kOuterColumns <= kNarrowColumnsMax);
// Prefetch distance of results: stores that miss the caches would fill the store buffer.
constexpr std::int64_t kWriteAhead = 6 * kSumVectors * kLanes;

// Sum of the lanes of one register.
inline float SumLanes(Vec v) { return Sum4(v, v, v, v)[0]; }

// y[r, o] += x[r, :] · w[o, :] over `n` elements, for a tile of R x O. Meanwhile prefetches the n
// elements at `ahead`.
template <int R, int O>
void DotTile(std::int64_t n, const float* x, std::int64_t ldx, const float* w, std::int64_t ldw,
             float* y, std::int64_t ldy, const float* ahead) {
  Vec sum[R][O];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) sum[r][o] = Set(0);
  // One register of the depth: R rows of x times O rows of w. `load` handles a partial last
  // register.
  const auto step = [&](auto load, std::int64_t i) {
    Vec rows[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) rows[r] = load(x + r * ldx + i);
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) {
      const Vec v = load(w + o * ldw + i);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sum[r][o] = MulAdd(rows[r], v, sum[r][o]);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    __builtin_prefetch(ahead + i, 0, 2);
    step([](const float* p) { return Load(p); }, i);
  }
  if (i < n) step([rest = n - i](const float* p) { return LoadN(p, rest); }, i);
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o) {
    // Sum the lanes: Sum4 handles four registers at once.
    if constexpr (R == 4) {
      const Quad sums = Sum4(sum[0][o], sum[1][o], sum[2][o], sum[3][o]);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) y[r * ldy + o] += sums[r];
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) y[r * ldy + o] += SumLanes(sum[r][o]);
    }
  }
}

// One block of O rows of w times all rows of x. next: the O rows of w that are used after these;
// each pass over w prefetches one of them, so that loads overlap with computation.
template <int O>
void DotRows(std::int64_t batch, std::int64_t n, const float* x, std::int64_t ldx, const float* w,
             std::int64_t ldw, float* y, std::int64_t ldy, const float* next) {
  std::int64_t r = 0;
  int pass = 0;
  // Row of `next` to prefetch in this pass; w itself when all rows have been prefetched.
  const auto ahead = [&] { return pass < O ? next + pass++ * ldw : w; };
  for (; r + kDotRows <= batch; r += kDotRows)
    DotTile<kDotRows, O>(n, x + r * ldx, ldx, w, ldw, y + r * ldy, ldy, ahead());
  for (; r < batch; ++r) DotTile<1, O>(n, x + r * ldx, ldx, w, ldw, y + r * ldy, ldy, ahead());
}

// Starts y from the bias, then adds the products block by block along the depth. Blocks are of
// equal size and multiples of a register.
void DotForward(const LinearShape& shape, std::int64_t batch, const float* weight,
                const float* bias, const float* x, float* y) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t o = 0; o < shape.out; ++o) y[b * shape.out + o] = bias[o];
  // Equal blocks: ⌈in / kDotBlock⌉ of them, rounded up to whole registers.
  const std::int64_t blocks = (shape.in + kDotBlock - 1) / kDotBlock;
  const std::int64_t block = ((shape.in + blocks - 1) / blocks + kLanes - 1) / kLanes * kLanes;
  std::int64_t o = 0;
  const auto rows = [&](auto run, int outputs) {
    for (std::int64_t i = 0; i < shape.in; i += block) {
      const std::int64_t n = shape.in - i < block ? shape.in - i : block;
      const float* const w = weight + o * shape.in + i;
      // The next block of these rows, or the first block of the next rows.
      const float* const next = i + block < shape.in ? w + block : w - i + outputs * shape.in;
      run(batch, n, x + i, shape.in, w, shape.in, y + o, shape.out, next);
    }
  };
  for (; o + kDotOutputs <= shape.out; o += kDotOutputs) rows(DotRows<kDotOutputs>, kDotOutputs);
  for (; o < shape.out; ++o) rows(DotRows<1>, 1);
}

// turned [in, kOuterColumns] = xᵀ for `rows` rows; the other columns are 0.
void Turn(std::int64_t rows, std::int64_t in, const float* x, float* turned) {
  constexpr std::int64_t kBlock = 16;  // a cache line of x
  for (std::int64_t i = 0; i < in; i += kBlock) {
    const std::int64_t end = in - i < kBlock ? in : i + kBlock;
    for (std::int64_t r = 0; r < kOuterColumns; ++r) {
      for (std::int64_t j = i; j < end; ++j)
        turned[j * kOuterColumns + r] = r < rows ? x[r * in + j] : 0;
    }
  }
}

// y[r, o] = x[r, :] · w[o, :] + bias[o] for O outputs and `rows` rows of x, which is transposed in
// `turned`. The tile goes through memory at the end, since its lanes are rows of y.
template <int O>
void OuterTile(std::int64_t in, std::int64_t rows, const float* turned, const float* w,
               const float* bias, float* y, std::int64_t ldy) {
  Vec sum[O][kOuterVectors];
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o)
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v) sum[o][v] = Set(bias[o]);
  for (std::int64_t i = 0; i < in; ++i) {
    Vec xs[kOuterVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v) xs[v] = Load(turned + i * kOuterColumns + v * kLanes);
#pragma GCC unroll 16
    for (int o = 0; o < O; ++o) {
      // One broadcast weight times a register of rows.
      const Vec wi = Set(w[o * in + i]);
#pragma GCC unroll 16
      for (int v = 0; v < kOuterVectors; ++v) sum[o][v] = MulAdd(wi, xs[v], sum[o][v]);
    }
  }
  // Rows of the tile are outputs; rows of y are items.
  float tile[O][kOuterColumns];
#pragma GCC unroll 16
  for (int o = 0; o < O; ++o)
#pragma GCC unroll 16
    for (int v = 0; v < kOuterVectors; ++v) Store(tile[o] + v * kLanes, sum[o][v]);
  for (std::int64_t r = 0; r < rows; ++r)
    for (int o = 0; o < O; ++o) y[r * ldy + o] = tile[o][r];
}

// Outer tiles for groups of kOuterColumns rows while enough rows are left, dot products for the
// rest.
void NarrowForward(const LinearShape& shape, std::int64_t batch, const float* weight,
                   const float* bias, const float* x, float* turned, float* y) {
  for (; batch >= kOuterRowsMin; batch -= kOuterColumns) {
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

// Operands of c[m, n] (+)= Σ_k a[m * am + k * ak] * b[k * ldb + n].
struct SumOperands {
  const float* a = nullptr;
  std::int64_t am = 0, ak = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

// A tile of M rows and V vectors, of which the last has `tail` lanes.
template <int M, int V>
void SumTile(const SumOperands& t, std::int64_t depth, std::int64_t tail, bool add) {
  // Only the last vector of a tile may be partial.
  const auto load = [&](const float* p, int v) {
    return v + 1 < V || tail == kLanes ? Load(p + v * kLanes) : LoadN(p + v * kLanes, tail);
  };
  Vec sum[M][V];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[m][v] = add ? load(t.c + m * t.ldc, v) : Set(0);
  // The loop over the depth, compiled for whole and for partial last vectors.
  const auto run = [&](auto load_b) {
    for (std::int64_t k = 0; k < depth; ++k) {
      Vec b[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) b[v] = load_b(t.b + k * t.ldb, v);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const Vec a = Set(t.a[m * t.am + k * t.ak]);
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[m][v] = MulAdd(a, b[v], sum[m][v]);
      }
    }
  };
  if (tail == kLanes)
    run([](const float* p, int v) { return Load(p + v * kLanes); });
  else
    run(load);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      float* const c = t.c + m * t.ldc + v * kLanes;
      if (v + 1 < V || tail == kLanes)
        Store(c, sum[m][v]);
      else
        StoreN(c, sum[m][v], tail);
    }
  }
}

// The columns that are left of a row, up to kSumVectors vectors; the last may be partial.
template <int M>
void SumVectors(const SumOperands& t, std::int64_t depth, std::int64_t columns, bool add) {
  if (columns > (kSumVectors - 1) * kLanes)
    return SumTile<M, kSumVectors>(t, depth, columns - (kSumVectors - 1) * kLanes, add);
  // Fewer columns than a whole tile: one vector at a time.
  SumOperands part = t;
  for (std::int64_t n = 0; n < columns; n += kLanes, part.b += kLanes, part.c += kLanes)
    SumTile<M, 1>(part, depth, columns - n < kLanes ? columns - n : kLanes, add);
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
  while (m + kSumRows <= rows) SumVectors<kSumRows>(t, depth, columns, add), next(kSumRows);
  while (m + 2 <= rows) SumVectors<2>(t, depth, columns, add), next(2);
  while (m < rows) SumVectors<1>(t, depth, columns, add), next(1);
}

// Columns of the next step along a row.
inline std::int64_t SumColumns(std::int64_t left) {
  return left < kSumVectors * kLanes ? left : kSumVectors * kLanes;
}

// dx is the sum over blocks of kSumBlock outputs; the first block overwrites it.
void NarrowBackwardData(const LinearShape& shape, std::int64_t batch, const float* weight,
                        const float* dz, float* dx) {
  for (std::int64_t o = 0; o < shape.out; o += kSumBlock) {
    const std::int64_t depth = shape.out - o < kSumBlock ? shape.out - o : kSumBlock;
    for (std::int64_t i = 0; i < shape.in; i += kSumVectors * kLanes) {
      // Consecutive pieces of one row are far apart in this order, so no hardware prefetcher finds
      // them.
      for (std::int64_t k = 0; k < depth; ++k) {
        const float* const next = weight + (o + k) * shape.in + i + kSumVectors * kLanes;
        for (int line = 0; line < kSumVectors * kLanes; line += 16) __builtin_prefetch(next + line);
      }
      // a = dz [batch, outputs], b = rows of w.
      SumRows({dz + o, shape.out, 1, weight + o * shape.in + i, shape.in, dx + i, shape.in}, batch,
              depth, SumColumns(shape.in - i), o > 0);
    }
  }
}

void NarrowBackwardWeight(const LinearShape& shape, std::int64_t batch, const float* x,
                          const float* dz, float*, float* dw, float* db, bool accumulate) {
  // db = Σ dz, a register of outputs at a time.
  for (std::int64_t o = 0; o < shape.out; o += kLanes) {
    const std::int64_t n = shape.out - o < kLanes ? shape.out - o : kLanes;
    Vec sum = accumulate ? (n == kLanes ? Load(db + o) : LoadN(db + o, n)) : Set(0);
    if (n == kLanes) {
      for (std::int64_t b = 0; b < batch; ++b) sum = sum + Load(dz + b * shape.out + o);
      Store(db + o, sum);
    } else {
      for (std::int64_t b = 0; b < batch; ++b) sum = sum + LoadN(dz + b * shape.out + o, n);
      StoreN(db + o, sum, n);
    }
  }
  // A few rows of dw at a time, so that each row is written from front to back.
  for (std::int64_t o = 0; o < shape.out; o += kSumRows) {
    const std::int64_t rows = shape.out - o < kSumRows ? shape.out - o : kSumRows;
    for (std::int64_t i = 0; i < shape.in; i += kSumVectors * kLanes) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const ahead = dw + (o + r) * shape.in + i + kWriteAhead;
        for (int line = 0; line < kSumVectors * kLanes; line += 16)
          __builtin_prefetch(ahead + line, 1);
      }
      // a = dzᵀ [outputs, batch], b = x.
      SumRows({dz + o, 1, shape.out, x + i, shape.in, dw + o * shape.in + i, shape.in}, rows, batch,
              SumColumns(shape.in - i), accumulate);
    }
  }
}

}  // namespace

namespace TROOP_ISA {
const NarrowKernels<float> kNarrowKernels = {NarrowForward, NarrowBackwardData,
                                             NarrowBackwardWeight};
}  // namespace TROOP_ISA

}  // namespace troop
