#pragma once

#include "kernels/fused_mlp/fused_network.h"
#include "kernels/simd/vec_math.h"

// Matrix products of a small network on row-major data, without packing: a loop over the depth
// accumulates a tile of sums in registers. Compiled once per instruction set; see
// kernels/simd/vec.h.
namespace troop {
namespace {

// Registers of sums per tile: AVX-512 has 32 registers, the other instruction sets 16.
constexpr int kTileSums = Vec::kLanes == 16 ? 24 : 12;
constexpr int kDotRows = kTileSums / 4;               // with 4 outputs each
constexpr int kAxpyVecs = Vec::kLanes == 16 ? 4 : 2;  // columns of a tile, in registers
constexpr int kAxpyRows = kTileSums / kAxpyVecs;

// std::min would be an inline function of the standard library (kernels/simd/vec.h).
inline std::int64_t Smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Unaligned access to four floats.
inline Quad LoadQuad(const float* p) {
  Quad q;
  __builtin_memcpy(&q, p, sizeof(q));
  return q;
}

inline void StoreQuad(float* p, Quad q) { __builtin_memcpy(p, &q, sizeof(q)); }

// y[i] = tanh(y[i]), in a separate pass.
inline void TanhInPlace(std::int64_t n, float* y) {
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) Store(y + i, Tanh(Load(y + i)));
  if (i < n) StoreN(y + i, Tanh(LoadN(y + i, n - i)), n - i);
}

// dy times the derivative of an activation, from its result y: relu [y > 0], tanh 1 - y².
inline Vec TimesDerivative(Vec dy, Activation activation, Vec y) {
  if (activation == Activation::kRelu) return SelectGreater(y, Set(0), dy, Set(0));
  if (activation == Activation::kTanh) return dy * (Set(1) - y * y);
  return dy;
}

// ---- y[rows, out] = relu?(x[rows, in] · w[out, in]ᵀ + bias). Both operands are contiguous along
// the depth; lanes are summed at the end.

// Operands of a product with transposed weights, bias and optional ReLU.
struct DotProblem {
  std::int64_t rows, in, out;
  const float* x;
  const float* w;
  const float* bias;
  bool relu;
  float* y;
};

// Sums the lanes of four registers, adds the bias, applies the ReLU and writes the outputs [first,
// first + 4) of one row, or fewer at the end of the row.
inline void StoreSums(const DotProblem& p, const Vec* sum, std::int64_t first, float* y) {
  const std::int64_t count = Smaller(4, p.out - first);
  Quad r = Sum4(sum[0], sum[1], sum[2], sum[3]);
  if (count == 4) {
    r = r + LoadQuad(p.bias + first);
    // NaN compares false and stays.
    if (p.relu) r = 0.0f > r ? Quad{} : r;
    StoreQuad(y, r);
    return;
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const float v = r[j] + p.bias[first + j];
    y[j] = p.relu && 0.0f > v ? 0.0f : v;
  }
}

// Computes outputs [first, first + 4 * kQuads) of kRows rows. If fewer than four outputs are left,
// the last one is computed repeatedly and not written.
template <int kRows, int kQuads>
inline void DotTile(const DotProblem& p, std::int64_t row, std::int64_t first) {
  constexpr int kOut = 4 * kQuads;
  const float* x = p.x + row * p.in;
  // Rows of the weights; past the end the last row again.
  const float* w[kOut];
#pragma GCC unroll 24
  for (int j = 0; j < kOut; ++j) w[j] = p.w + Smaller(first + j, p.out - 1) * p.in;
  Vec sum[kRows][kOut];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kOut; ++j) sum[i][j] = Set(0);
  }
  // Whole registers of the depth, then the rest with masked loads.
  std::int64_t k = 0;
  for (; k + Vec::kLanes <= p.in; k += Vec::kLanes) {
    Vec xi[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) xi[i] = Load(x + i * p.in + k);
#pragma GCC unroll 24
    for (int j = 0; j < kOut; ++j) {
      const Vec wj = Load(w[j] + k);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) sum[i][j] = MulAdd(xi[i], wj, sum[i][j]);
    }
  }
  if (const std::int64_t rest = p.in - k; rest > 0) {
    Vec xi[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) xi[i] = LoadN(x + i * p.in + k, rest);
#pragma GCC unroll 24
    for (int j = 0; j < kOut; ++j) {
      const Vec wj = LoadN(w[j] + k, rest);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) sum[i][j] = MulAdd(xi[i], wj, sum[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    float* y = p.y + (row + i) * p.out + first;
    // One transposing sum gives a whole register of outputs.
    if constexpr (kQuads > 1 && kOut == Vec::kLanes) {
      const Vec r = SumEach(sum[i]) + Load(p.bias + first);
      Store(y, p.relu ? Max(Set(0), r) : r);
    } else {
#pragma GCC unroll 6
      for (int q = 0; q < kOut; q += 4) StoreSums(p, &sum[i][q], first + q, y + q);
    }
  }
}

// All outputs of kRows rows, with as many outputs per tile as the registers hold.
template <int kRows>
inline void DotRows(const DotProblem& p, std::int64_t row) {
  // At most four quads: more outputs would need too many streams of weights.
  constexpr int kWide = kTileSums / (4 * kRows) > 4 ? 4 : kTileSums / (4 * kRows);
  std::int64_t first = 0;
  if constexpr (kRows == 1) {
    // Weights that stream from L2 load fastest on few streams.
    if (p.in > 256) {
      for (; first + 8 <= p.out; first += 8) DotTile<kRows, 2>(p, row, first);
    }
  }
  for (; first + 4 * kWide <= p.out; first += 4 * kWide) DotTile<kRows, kWide>(p, row, first);
  for (; first < p.out; first += 4) DotTile<kRows, 1>(p, row, first);
}

// DotRows<count> for a count that is known only at run time.
template <int kRows = kDotRows>
inline void DotSomeRows(const DotProblem& p, std::int64_t row, std::int64_t count) {
  if (count == kRows) return DotRows<kRows>(p, row);
  if constexpr (kRows > 1) DotSomeRows<kRows - 1>(p, row, count);
}

// The whole product.
inline void DotProduct(const DotProblem& p) {
  // Rows are divided evenly, so that no tile has only one or two.
  const std::int64_t tiles = (p.rows + kDotRows - 1) / kDotRows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t row = p.rows * t / tiles;
    DotSomeRows(p, row, p.rows * (t + 1) / tiles - row);
  }
}

// ---- c[rows, columns] = Σ_k a(row, k) b[k, columns]. a is broadcast; b and c are contiguous along
// the columns.

// Operands, and the epilogue that is applied to the sums in registers.
struct AxpyProblem {
  std::int64_t rows, columns, depth;
  const float* a;  // a(row, k) = a[row * a_row + k * a_depth]
  std::int64_t a_row, a_depth;
  const float* b;    // [depth, columns]
  float* c;          // [rows, columns]
  bool add = false;  // c += the product
  // Epilogue: multiply by the derivative of this activation, from its result [rows, columns].
  Activation derivative = Activation::kNone;
  const float* result = nullptr;
  // Epilogue: add the bias [columns], then ReLU.
  const float* bias = nullptr;
  bool relu = false;
};

// Register access of n elements, all lanes if n >= kLanes.
inline Vec LoadSome(const float* p, std::int64_t n) {
  return n >= Vec::kLanes ? Load(p) : LoadN(p, n);
}
inline void StoreSome(float* p, Vec v, std::int64_t n) {
  if (n >= Vec::kLanes) return Store(p, v);
  StoreN(p, v, n);
}

// Applies the epilogue to the sum of one register. at: its offset in c; n: valid lanes.
inline Vec Finished(const AxpyProblem& p, Vec sum, std::int64_t at, std::int64_t column,
                    std::int64_t n) {
  if (p.add) sum = LoadSome(p.c + at, n) + sum;
  if (p.derivative != Activation::kNone) {
    sum = TimesDerivative(sum, p.derivative, LoadSome(p.result + at, n));
  }
  if (p.bias == nullptr) return sum;
  sum = sum + LoadSome(p.bias + column, n);
  return p.relu ? Max(Set(0), sum) : sum;
}

// Computes columns [first, first + count) of kRows rows. kFull: count == kVecs * kLanes. A
// multiply-add has a latency of four cycles and two start per cycle, so small tiles split the depth
// into kSplit partial sums to have eight in flight.
template <int kRows, int kVecs, bool kFull>
inline void AxpyTile(const AxpyProblem& p, std::int64_t row, std::int64_t first,
                     std::int64_t count) {
  // kRows * kVecs sums per step of the depth are independent.
  constexpr int kSplit = kRows * kVecs >= 8 ? 1 : kRows * kVecs >= 4 ? 2 : 4;
  const float* b = p.b + first;
  const float* a = p.a + row * p.a_row;
  // Valid lanes of the last register.
  const std::int64_t last = kFull ? Vec::kLanes : count - (kVecs - 1) * Vec::kLanes;
  Vec sum[kSplit][kRows][kVecs];
#pragma GCC unroll 4
  for (int s = 0; s < kSplit; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) sum[s][i][j] = Set(0);
    }
  }
  // One step along the depth: b row times broadcast elements of a. Inlined, so that `into` stays in
  // registers.
  const auto multiply = [&](Vec(&into)[kRows][kVecs]) __attribute__((always_inline)) {
    Vec bk[kVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) {
      bk[j] =
          kFull || j + 1 < kVecs ? Load(b + j * Vec::kLanes) : LoadSome(b + j * Vec::kLanes, last);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Vec ai = Set(a[i * p.a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) into[i][j] = MulAdd(ai, bk[j], into[i][j]);
    }
    b += p.columns, a += p.a_depth;
  };
  std::int64_t k = 0;
  for (; k + kSplit <= p.depth; k += kSplit) {
#pragma GCC unroll 4
    for (int s = 0; s < kSplit; ++s) multiply(sum[s]);
  }
  for (; k < p.depth; ++k) multiply(sum[0]);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) {
      // Combine the partial sums and apply the epilogue.
      Vec total = sum[0][i][j];
#pragma GCC unroll 4
      for (int s = 1; s < kSplit; ++s) total = total + sum[s][i][j];
      const std::int64_t column = first + j * Vec::kLanes;
      const std::int64_t at = (row + i) * p.columns + column;
      const std::int64_t n = j + 1 < kVecs ? Vec::kLanes : last;
      StoreSome(p.c + at, Finished(p, total, at, column, n), n);
    }
  }
}

// AxpyTile for a number of rows that is known only at run time.
template <int kVecs, bool kFull, int kRows = kAxpyRows>
inline void AxpySomeRows(const AxpyProblem& p, std::int64_t row, std::int64_t rows,
                         std::int64_t first, std::int64_t count) {
  if (rows == kRows) return AxpyTile<kRows, kVecs, kFull>(p, row, first, count);
  if constexpr (kRows > 1) AxpySomeRows<kVecs, kFull, kRows - 1>(p, row, rows, first, count);
}

// All rows of some columns, divided evenly into tiles.
template <int kVecs, bool kFull>
inline void AxpyColumns(const AxpyProblem& p, std::int64_t first, std::int64_t count) {
  // Rows are divided evenly, as in DotProduct.
  const std::int64_t tiles = (p.rows + kAxpyRows - 1) / kAxpyRows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t row = p.rows * t / tiles;
    AxpySomeRows<kVecs, kFull>(p, row, p.rows * (t + 1) / tiles - row, first, count);
  }
}

// The whole product: wide column blocks, then single registers.
inline void AxpyProduct(const AxpyProblem& p) {
  constexpr std::int64_t kWide = kAxpyVecs * Vec::kLanes;
  std::int64_t first = 0;
  for (; first + kWide <= p.columns; first += kWide) AxpyColumns<kAxpyVecs, true>(p, first, kWide);
  while (first < p.columns) {
    // A single register, possibly partial.
    const std::int64_t count = Smaller(Vec::kLanes, p.columns - first);
    if (count == Vec::kLanes) {
      AxpyColumns<1, true>(p, first, count);
    } else {
      AxpyColumns<1, false>(p, first, count);
    }
    first += count;
  }
}

// Transposes a 4 x 4 block: from has rows of `columns` floats, to has rows of `rows`.
inline void TransposeQuads(std::int64_t rows, std::int64_t columns, const float* from, float* to) {
  const Quad q0 = LoadQuad(from), q1 = LoadQuad(from + columns);
  const Quad q2 = LoadQuad(from + 2 * columns), q3 = LoadQuad(from + 3 * columns);
  // Two rounds of interleaving.
  const Quad a = __builtin_shufflevector(q0, q1, 0, 4, 1, 5);
  const Quad b = __builtin_shufflevector(q2, q3, 0, 4, 1, 5);
  const Quad c = __builtin_shufflevector(q0, q1, 2, 6, 3, 7);
  const Quad d = __builtin_shufflevector(q2, q3, 2, 6, 3, 7);
  StoreQuad(to, __builtin_shufflevector(a, b, 0, 1, 4, 5));
  StoreQuad(to + rows, __builtin_shufflevector(a, b, 2, 3, 6, 7));
  StoreQuad(to + 2 * rows, __builtin_shufflevector(c, d, 0, 1, 4, 5));
  StoreQuad(to + 3 * rows, __builtin_shufflevector(c, d, 2, 3, 6, 7));
}

// to [columns, rows] = fromᵀ, in blocks of 16 columns whose cache lines stay in L1.
inline void Transpose(std::int64_t rows, std::int64_t columns, const float* from, float* to) {
  // Whole 4 x 4 blocks first; the remaining rows and columns one element at a time.
  const std::int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (std::int64_t first = 0; first < whole_columns; first += 16) {
    const std::int64_t end = Smaller(first + 16, whole_columns);
    for (std::int64_t r = 0; r < whole_rows; r += 4) {
      for (std::int64_t c = first; c < end; c += 4) {
        TransposeQuads(rows, columns, from + r * columns + c, to + c * rows + r);
      }
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[c * rows + r] = from[r * columns + c];
    }
  }
}

// sum[n] (+)= Σ_rows x[row, n]. Four partial sums hide the latency of additions.
inline void ColumnSums(std::int64_t rows, std::int64_t n, const float* x, bool add, float* sum) {
  for (std::int64_t first = 0; first < n; first += Vec::kLanes) {
    const std::int64_t count = Smaller(Vec::kLanes, n - first);
    Vec part[4] = {Set(0), Set(0), Set(0), Set(0)};
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) part[j] = part[j] + LoadSome(x + (r + j) * n + first, count);
    }
    for (; r < rows; ++r) part[0] = part[0] + LoadSome(x + r * n + first, count);
    const Vec total = (part[0] + part[1]) + (part[2] + part[3]);
    StoreSome(sum + first, add ? LoadSome(sum + first, count) + total : total, count);
  }
}

}  // namespace
}  // namespace troop
