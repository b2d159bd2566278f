// Attention in bf16 on tensor cores (FlashAttention-2, Dao 2023): one block per 64 queries (or
// keys) of a head, with an online softmax. Scores stay in registers.
#include "kernels/cuda/ops/attention.h"

#include <type_traits>

#include "kernels/cuda/ops/dropout_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

// A block handles 64 queries (or keys) of one head, 16 per warp. Keys and values (or queries and
// output gradients) are loaded 64 at a time; the next 64 load during the computation.
constexpr int kWidth = 64, kTile = 64, kWarps = 4, kThreads = 32 * kWarps;
// Rows in shared memory are padded by 16 bytes, so that eight consecutive rows lie in different
// banks.
constexpr int kStride = kWidth + 8, kTileElements = kTile * kStride;
constexpr int kColumns = kTile / 8;  // 8-column tiles of a product's result
// Exponentials use base 2, for which GPUs have an instruction.
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr float kScale = 0.125f;  // 1 / √64
static_assert(kWidth == kTile, "results of both kinds of product have as many columns");

// The rows of one head of one sequence, in qkv or out.
struct Rows {
  const BF16* base;     // first token
  std::int64_t step;    // elements between tokens
  std::int64_t tokens;  // length of the sequence
};

// Fragments of a warp for 16 rows: the left operand of MultiplyBF16, and the result of a product. A
// thread holds elements of row lane / 4 and of the row 8 below.
using Factor = std::uint32_t[kWidth / 16][4];
using Result = float[kColumns][4];

// Position of a block: sequence blockIdx.z, head blockIdx.y, rows from `first` on. starts: of
// PackedSequences.
struct Place {
  std::int64_t start, tokens, first, head;
  TROOP_DEVICE explicit Place(const std::int32_t* starts)
      : start(starts[blockIdx.z]),
        tokens(starts[blockIdx.z + 1] - start),
        first(std::int64_t(blockIdx.x) * kTile),
        head(blockIdx.y) {}
  // which: 0 queries, 1 keys, 2 values.
  TROOP_DEVICE Rows of(const BF16* qkv, std::int64_t heads, int which) const {
    return {qkv + ((start * 3 + which) * heads + head) * kWidth, 3 * heads * kWidth, tokens};
  }
  TROOP_DEVICE Rows of(const BF16* out, std::int64_t heads) const {
    return {out + (start * heads + head) * kWidth, heads * kWidth, tokens};
  }
};

// Loads rows first … first + 63 to shared memory; rows after the end of the sequence become 0.
TROOP_DEVICE void LoadTile(const Rows& from, std::int64_t first, BF16* to) {
  constexpr int kChunks = kWidth * int(sizeof(BF16)) / 16;
  TROOP_UNROLL for (int i = 0; i < kTile * kChunks / kThreads; ++i) {
    const int chunk = int(threadIdx.x) + i * kThreads, row = chunk / kChunks;
    const bool valid = first + row < from.tokens;
    const std::int64_t at = valid ? (first + row) * from.step + chunk % kChunks * 8 : 0;
    CopyAsync16(to + row * kStride + chunk % kChunks * 8, from.base + at, valid);
  }
}

// Loads this warp's 16 rows of a tile.
TROOP_DEVICE void LoadFactor(const BF16* tile, Factor& factor) {
  const int warp = int(threadIdx.x / 32), matrix = int(threadIdx.x % 32 / 8);
  const int row = 16 * warp + matrix % 2 * 8 + int(threadIdx.x % 8);
  TROOP_UNROLL for (int d = 0; d < kWidth / 16; ++d) {
    LoadMatrix4(factor[d], tile + row * kStride + 16 * d + matrix / 2 * 8);
  }
}

// result = rows · tileᵀ.
TROOP_DEVICE void TimesTransposed(const Factor& rows, const BF16* tile, Result& result) {
  const int matrix = int(threadIdx.x % 32 / 8), line = int(threadIdx.x % 8);
  TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
    TROOP_UNROLL for (int i = 0; i < 4; ++i) result[n][i] = 0;
  }
  TROOP_UNROLL for (int d = 0; d < kWidth / 16; ++d) {
    TROOP_UNROLL for (int n = 0; n < kColumns; n += 2) {
      std::uint32_t both[4];
      LoadMatrix4(both, tile + (8 * n + matrix / 2 * 8 + line) * kStride + 16 * d + matrix % 2 * 8);
      const std::uint32_t left[2] = {both[0], both[1]}, right[2] = {both[2], both[3]};
      MultiplyBF16(result[n], rows[d], left);
      MultiplyBF16(result[n + 1], rows[d], right);
    }
  }
}

// sum += s · tile, with s rounded to bf16. Two adjacent 8-column tiles of a result have the
// register layout of a left operand that is 16 wide, so s needs no shuffles.
TROOP_DEVICE void AddTimes(const Result& s, const BF16* tile, Result& sum) {
  const int matrix = int(threadIdx.x % 32 / 8), line = int(threadIdx.x % 8);
  TROOP_UNROLL for (int c = 0; c < kTile / 16; ++c) {
    const std::uint32_t factor[4] = {
        ToBF16x2(s[2 * c][0], s[2 * c][1]), ToBF16x2(s[2 * c][2], s[2 * c][3]),
        ToBF16x2(s[2 * c + 1][0], s[2 * c + 1][1]), ToBF16x2(s[2 * c + 1][2], s[2 * c + 1][3])};
    TROOP_UNROLL for (int n = 0; n < kColumns; n += 2) {
      std::uint32_t both[4];
      LoadMatrix4Transposed(
          both, tile + (16 * c + matrix % 2 * 8 + line) * kStride + 8 * n + matrix / 2 * 8);
      const std::uint32_t left[2] = {both[0], both[1]}, right[2] = {both[2], both[3]};
      MultiplyBF16(sum[n], factor, left);
      MultiplyBF16(sum[n + 1], factor, right);
    }
  }
}

// Stores scale · one of the two rows (half 0 or 1) of a thread.
TROOP_DEVICE void StoreRow(const Result& result, int half, float scale, BF16* row) {
  BF16* const to = row + threadIdx.x % 4 * 2;
  TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
    *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
        ToBF16x2(result[n][2 * half] * scale, result[n][2 * half + 1] * scale);
  }
}

// Maximum and sum over the four threads that share a row.
TROOP_DEVICE float QuadMax(float x) {
  for (int step = 1; step <= 2; step *= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, step));
  return x;
}
TROOP_DEVICE float QuadSum(float x) {
  for (int step = 1; step <= 2; step *= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  return x;
}

// Calls use(tile, rows of a, rows of b) for every 64 rows of two arrays. Copies that are in flight
// at the call also complete before the first use. buffers: two tiles per array, for double
// buffering.
template <class Use>
TROOP_DEVICE void ForTiles(const Rows& a, const Rows& b, BF16* buffers, const Use& use) {
  // The first tiles of both arrays; then always one step ahead.
  const std::int64_t tiles = (a.tokens + kTile - 1) / kTile;
  LoadTile(a, 0, buffers);
  LoadTile(b, 0, buffers + 2 * kTileElements);
  CopyCommit();
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    BF16* const now = buffers + tile % 2 * kTileElements;
    BF16* const next = buffers + (tile + 1) % 2 * kTileElements;
    if (tile + 1 < tiles) {
      LoadTile(a, (tile + 1) * kTile, next);
      LoadTile(b, (tile + 1) * kTile, next + 2 * kTileElements);
      CopyCommit();
      CopyWait<1>();
    } else {
      CopyWait<0>();
    }
    __syncthreads();
    use(tile, now, now + 2 * kTileElements);
    __syncthreads();  // before the next but one overwrites them
  }
}

// Row (half 0 or 1) and column of a thread's elements of a result tile.
TROOP_DEVICE int RowOf(int half) {
  return int(threadIdx.x / 32) * 16 + 8 * half + int(threadIdx.x % 32) / 4;
}
TROOP_DEVICE int ColumnOf(int n, int i) { return 8 * n + int(threadIdx.x % 4) * 2 + i % 2; }

// Converts scores to base-2 exponents. Columns from `there` on are not keys and become -infinity.
TROOP_DEVICE void ScaleScores(int there, Result& s) {
  TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
    TROOP_UNROLL for (int i = 0; i < 4; ++i) {
      s[n][i] = ColumnOf(n, i) < there ? s[n][i] * (kScale * kLog2E) : -INFINITY;
    }
  }
}
// Number of keys in a tile.
TROOP_DEVICE int KeysIn(std::int64_t tile, std::int64_t tokens) {
  return int(min(std::int64_t(kTile), tokens - tile * kTile));
}

// Dropout mask of the scores: one bit per score, in the order of the element numbers of dropout.
// The bits of a sequence start at a new word, at the beginning of the group of 128 that contains
// the first score of its first head.
struct KeptScores {
  const std::uint32_t* words;
  std::int64_t heads, first_head, longest;
  float scale;

  // First word of a sequence; each has 16 words of padding for rounding and for reads past the end.
  TROOP_HOST_DEVICE std::int64_t WordOf(std::int64_t start, std::int64_t sequence) const {
    return heads * start * longest / (32 * 4) * 4 + 16 * sequence;
  }
  // The bits of 64 keys from `key` on, for a query of the sequence; 0 for a query after its end. An
  // unaligned read of three words.
  TROOP_DEVICE std::uint64_t Row(const Place& place, std::int64_t query, std::int64_t key) const {
    if (query >= place.tokens) return 0;
    const std::int64_t skipped = first_head * place.tokens * place.tokens % kDropoutGroup;
    const auto bit =
        std::uint64_t(skipped + (place.head * place.tokens + query) * place.tokens + key);
    const std::uint32_t* const at = words + WordOf(place.start, blockIdx.z) + bit / 32;
    const unsigned shift = unsigned(bit % 32);
    const std::uint64_t low = std::uint64_t(at[1]) << 32 | at[0],
                        high = std::uint64_t(at[2]) << 32 | at[1];
    return std::uint64_t(std::uint32_t(high >> shift)) << 32 | std::uint32_t(low >> shift);
  }
};

// Draws the mask. Half a warp generates a group of 128 bits (dropout_device.h), each lane one
// Philox block for eight of them. blockIdx.y: the sequence.
constexpr int kDrawThreads = 256, kDrawEach = 4;
TROOP_KERNEL void __launch_bounds__(kDrawThreads)
    DrawScoresKernel(const std::int32_t* starts, KeptScores kept, DropoutArgs drop,
                     std::uint32_t* words) {
  const std::int64_t start = starts[blockIdx.y], tokens = starts[blockIdx.y + 1] - start;
  const std::int64_t first = kept.first_head * tokens * tokens, skipped = first % kDropoutGroup;
  // Row() reads 64 keys at a time, and so some bits after the last one.
  const std::int64_t groups =
      (skipped + kept.heads * tokens * tokens + 64 + kDropoutGroup - 1) / kDropoutGroup;
  const DropoutKey key = drop.keys[blockIdx.y];
  const int lane = int(threadIdx.x % 32), mine = lane / kDropoutLanes;
  std::uint32_t* const to = words + kept.WordOf(start, blockIdx.y);
  for (int each = 0; each < kDrawEach; ++each) {
    const std::int64_t warp =
        (std::int64_t(blockIdx.x) * kDrawEach + each) * (kDrawThreads / 32) + threadIdx.x / 32;
    // The whole warp returns, so the ballots stay complete.
    if (2 * warp >= groups) return;
    const std::int64_t group = 2 * warp + mine;
    std::uint32_t word[4], bits[8];
    DropoutBlock(
        key, drop.site,
        std::uint32_t((first / kDropoutGroup + group) * kDropoutLanes + lane % kDropoutLanes),
        word);
    // The ballot of step s has the bits of elements 16 s … 16 s + 15 of both groups of the warp.
    TROOP_UNROLL for (int step = 0; step < 8; ++step) {
      const std::uint32_t number = step % 2 == 0 ? word[step / 2] & 0xffffu : word[step / 2] >> 16;
      bits[step] = __ballot_sync(kWholeWarp, number < drop.kept);
    }
    if (lane % kDropoutLanes != 0 || group >= groups) continue;
    const int shift = 16 * mine;
    // Bits of 32 consecutive scores: two steps of this half of the warp.
    const auto pair = [&](int step) {
      return (bits[step] >> shift & 0xffffu) | (bits[step + 1] >> shift & 0xffffu) << 16;
    };
    *reinterpret_cast<uint4*>(to + 4 * group) = make_uint4(pair(0), pair(2), pair(4), pair(6));
  }
}

// Applies the mask to a tile of scores. row: for both rows of the thread, the bits of the tile's
// keys from the thread's first column on.
TROOP_DEVICE void DropScores(const std::uint64_t (&row)[2], float scale, Result& s) {
  TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
    TROOP_UNROLL for (int i = 0; i < 4; ++i) {
      s[n][i] *= (row[i / 2] >> (8 * n + i % 2) & 1) != 0 ? scale : 0;
    }
  }
}
// The mask bits of both rows of the thread, as DropScores takes them.
TROOP_DEVICE void KeptRows(const KeptScores& kept, const Place& place, std::int64_t key,
                           std::uint64_t (&row)[2]) {
  TROOP_UNROLL for (int half = 0; half < 2; ++half) {
    row[half] = kept.Row(place, place.first + RowOf(half), key) >> ColumnOf(0, 0);
  }
}

template <bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    AttentionForwardKernel(const std::int32_t* starts, std::int64_t heads, KeptScores kept,
                           const BF16* qkv, BF16* out, float* lse) {
  const Place place(starts);
  if (place.first >= place.tokens) return;
  BF16* const queries = reinterpret_cast<BF16*>(DynamicShared());
  LoadTile(place.of(qkv, heads, 0), place.first, queries);
  // The queries stay in registers; o accumulates the output.
  Factor q;
  Result o = {};
  float largest[2] = {-INFINITY, -INFINITY};  // maxima of scores, times log2 e
  float sum[2] = {};                          // over this thread's columns
  ForTiles(place.of(qkv, heads, 1), place.of(qkv, heads, 2), queries + kTileElements,
           [&](std::int64_t tile, const BF16* keys, const BF16* values) {
             if (tile == 0) LoadFactor(queries, q);
             std::uint64_t row[2] = {};
             if constexpr (kDrops) KeptRows(kept, place, tile * kTile, row);
             Result s;
             TimesTransposed(q, keys, s);
             ScaleScores(KeysIn(tile, place.tokens), s);
             TROOP_UNROLL for (int half = 0; half < 2; ++half) {
               // Online softmax: a new maximum rescales the sum and the output so far.
               float now = -INFINITY;
               TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
                 now = fmaxf(now, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
               }
               now = fmaxf(largest[half], QuadMax(now));
               const float shrunk = exp2f(largest[half] - now);
               largest[half] = now;
               sum[half] *= shrunk;
               TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
                 TROOP_UNROLL for (int i = 2 * half; i < 2 * half + 2; ++i) {
                   s[n][i] = exp2f(s[n][i] - now);
                   sum[half] += s[n][i];
                   o[n][i] *= shrunk;
                 }
               }
             }
             if constexpr (kDrops) DropScores(row, kept.scale, s);
             AddTimes(s, values, o);
           });
  TROOP_UNROLL for (int half = 0; half < 2; ++half) {
    // Normalization by the softmax sum, and lse in natural logarithm.
    const float all = QuadSum(sum[half]);
    const std::int64_t row = place.first + RowOf(half);
    if (row >= place.tokens) continue;
    const std::int64_t at = (place.start + row) * heads + place.head;
    StoreRow(o, half, 1 / all, out + at * kWidth);
    if (threadIdx.x % 4 == 0) lse[at] = (largest[half] + log2f(all)) * kLn2;
  }
}

// delta [rows] = Σ out dout over the 64 elements of a row, eight threads per row.
TROOP_KERNEL void DeltaKernel(std::int64_t rows, const BF16* out, const BF16* dout, float* delta) {
  const std::int64_t row = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) / 8;
  float sum = 0;
  if (row < rows) {
    float a[8], b[8];
    GetVector(out + row * kWidth + threadIdx.x % 8 * 8, a);
    GetVector(dout + row * kWidth + threadIdx.x % 8 * 8, b);
    TROOP_UNROLL for (int i = 0; i < 8; ++i) sum += a[i] * b[i];
  }
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
  if (row < rows && threadIdx.x % 8 == 0) delta[row] = sum;
}

// Gradient of the queries. With P the softmax, M the dropout factors and dP = M dO Vᵀ: dS = P (dP -
// delta), dQ = dS K / 8. P is recomputed from lse; rows after the end have shift = infinity and so
// P = 0.
template <bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    QueryGradientKernel(const std::int32_t* starts, std::int64_t heads, KeptScores kept,
                        const BF16* qkv, const float* lse, const BF16* dout, const float* delta,
                        BF16* dqkv) {
  const Place place(starts);
  if (place.first >= place.tokens) return;
  BF16* const queries = reinterpret_cast<BF16*>(DynamicShared());
  BF16* const gradients = queries + kTileElements;
  LoadTile(place.of(qkv, heads, 0), place.first, queries);
  LoadTile(place.of(dout, heads), place.first, gradients);
  // Per row: lse in base 2, and delta.
  float shift[2], less[2];
  std::int64_t rows[2];
  TROOP_UNROLL for (int half = 0; half < 2; ++half) {
    rows[half] = place.first + RowOf(half);
    const std::int64_t at = (place.start + rows[half]) * heads + place.head;
    const bool valid = rows[half] < place.tokens;
    shift[half] = valid ? lse[at] * kLog2E : INFINITY;
    less[half] = valid ? delta[at] : 0;
  }
  Factor q, d;
  Result dq = {};
  ForTiles(place.of(qkv, heads, 1), place.of(qkv, heads, 2), gradients + kTileElements,
           [&](std::int64_t tile, const BF16* keys, const BF16* values) {
             if (tile == 0) LoadFactor(queries, q), LoadFactor(gradients, d);
             std::uint64_t row[2] = {};
             if constexpr (kDrops) KeptRows(kept, place, tile * kTile, row);
             Result s, dp;
             TimesTransposed(q, keys, s);
             TimesTransposed(d, values, dp);
             if constexpr (kDrops) DropScores(row, kept.scale, dp);
             ScaleScores(KeysIn(tile, place.tokens), s);
             TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
               TROOP_UNROLL for (int i = 0; i < 4; ++i) {
                 // P (dP - delta), in place of the scores.
                 s[n][i] = exp2f(s[n][i] - shift[i / 2]) * (dp[n][i] - less[i / 2]);
               }
             }
             AddTimes(s, keys, dq);
           });
  TROOP_UNROLL for (int half = 0; half < 2; ++half) {
    if (rows[half] >= place.tokens) continue;
    StoreRow(dq, half, kScale,
             dqkv + ((place.start + rows[half]) * 3 * heads + place.head) * kWidth);
  }
}

// Gradients of keys and values, with keys as rows: dV = (M P)ᵀ dO, dK = dSᵀ Q / 8. Values that
// belong to a query (lse, delta, mask) are indexed by column.
template <bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    KeyValueGradientKernel(const std::int32_t* starts, std::int64_t heads, KeptScores kept,
                           const BF16* qkv, const float* lse, const BF16* dout, const float* delta,
                           BF16* dqkv) {
  // Mask of the block's 64 keys, two words per query.
  TROOP_SHARED(std::uint32_t, bits, kDrops ? 2 * kTile : 1);
  const Place place(starts);
  if (place.first >= place.tokens) return;
  BF16* const keys = reinterpret_cast<BF16*>(DynamicShared());
  BF16* const values = keys + kTileElements;
  // Per query: lse in base 2, and delta, in shared memory.
  float* const shift = reinterpret_cast<float*>(values + 5 * kTileElements);
  float* const less = shift + kTile;
  LoadTile(place.of(qkv, heads, 1), place.first, keys);
  LoadTile(place.of(qkv, heads, 2), place.first, values);
  Factor k, v;
  Result dk = {}, dv = {};
  ForTiles(place.of(qkv, heads, 0), place.of(dout, heads), values + kTileElements,
           [&](std::int64_t tile, const BF16* queries, const BF16* gradients) {
             if (tile == 0) LoadFactor(keys, k), LoadFactor(values, v);
             // One thread per query of the tile loads its values.
             if (threadIdx.x < kTile) {
               const std::int64_t query = tile * kTile + threadIdx.x;
               const std::int64_t at = (place.start + query) * heads + place.head;
               const bool valid = query < place.tokens;
               shift[threadIdx.x] = valid ? lse[at] * kLog2E : INFINITY;
               less[threadIdx.x] = valid ? delta[at] : 0;
               if constexpr (kDrops) {
                 const std::uint64_t row = kept.Row(place, query, place.first);
                 bits[2 * threadIdx.x] = std::uint32_t(row);
                 bits[2 * threadIdx.x + 1] = std::uint32_t(row >> 32);
               }
             }
             Result s, dp;
             TimesTransposed(k, queries, s);
             TimesTransposed(v, gradients, dp);
             __syncthreads();
             TROOP_UNROLL for (int n = 0; n < kColumns; ++n) {
               TROOP_UNROLL for (int i = 0; i < 4; ++i) {
                 const int query = ColumnOf(n, i);
                 float factor = 1;
                 if constexpr (kDrops) {
                   const int key = RowOf(i / 2);
                   factor = (bits[2 * query + key / 32] >> key % 32 & 1) != 0 ? kept.scale : 0;
                 }
                 // s becomes M P, dp becomes dS.
                 s[n][i] = exp2f(s[n][i] * (kScale * kLog2E) - shift[query]);
                 dp[n][i] = s[n][i] * (factor * dp[n][i] - less[query]);
                 s[n][i] *= factor;
               }
             }
             AddTimes(s, gradients, dv);
             AddTimes(dp, queries, dk);
           });
  TROOP_UNROLL for (int half = 0; half < 2; ++half) {
    const std::int64_t row = place.first + RowOf(half);
    if (row >= place.tokens) continue;
    BF16* const to = dqkv + (((place.start + row) * 3 + 1) * heads + place.head) * kWidth;
    StoreRow(dk, half, kScale, to);
    StoreRow(dv, half, 1, to + heads * kWidth);
  }
}

// Launch with `tiles` tiles and `floats` floats of shared memory.
LaunchShape ShapeOf(const PackedSequences& batch, std::int64_t heads, std::size_t tiles,
                    std::size_t floats) {
  return {
      dim3(unsigned(CeilDivide(batch.longest, kTile)), unsigned(heads), unsigned(batch.sequences)),
      dim3(kThreads), tiles * kTileElements * sizeof(BF16) + floats * sizeof(float)};
}

// Calls run(std::true_type if dropout is active, the mask).
template <class Run>
void WithDrops(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
               const Run& run) {
  const KeptScores kept{form.kept_scores, form.heads, form.first_head, batch.longest,
                        ArgsOf(form.dropout).scale};
  if (!form.dropout.drops()) return run(std::false_type(), kept);
  if (form.kept_scores == nullptr) {
    return stream.device().Fail("attention with dropout in bf16 needs AttentionForm::kept_scores");
  }
  run(std::true_type(), kept);
}

// Launches DrawScoresKernel; groups are counted for the longest sequence.
void DrawScores(Stream& stream, const PackedSequences& batch, const AttentionForm& form,
                const KeptScores& kept) {
  const std::int64_t groups =
      CeilDivide(form.heads * batch.longest * batch.longest + 64, kDropoutGroup) + 1;
  Launch(stream, "DrawScores",
         {dim3(unsigned(CeilDivide(groups, 2 * kDrawEach * (kDrawThreads / 32))),
               unsigned(batch.sequences)),
          dim3(kDrawThreads)},
         DrawScoresKernel, batch.starts, kept, ArgsOf(form.dropout), form.kept_scores);
}

}  // namespace

void AttentionForward(Stream& stream, const AttentionForwardArgs& args) {
  const PackedSequences& batch = args.batch;
  const AttentionForm& form = args.form;
  if (form.dtype == DType::kF32) return PlainAttentionForward(stream, args);
  WithDrops(stream, batch, form, [&](auto drops, const KeptScores& kept) {
    if constexpr (decltype(drops)::value) DrawScores(stream, batch, form, kept);
    Launch(stream, "AttentionForward", ShapeOf(batch, form.heads, 5, 0),
           AttentionForwardKernel<decltype(drops)::value>, batch.starts, form.heads, kept,
           static_cast<const BF16*>(args.qkv), static_cast<BF16*>(args.out), args.lse);
  });
}

void AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) {
  const PackedSequences& batch = args.batch;
  const AttentionForm& form = args.form;
  if (form.dtype == DType::kF32) return PlainAttentionBackward(stream, args);
  const std::int64_t rows = batch.tokens * form.heads;
  const auto* const from = static_cast<const BF16*>(args.qkv);
  const auto* const dfrom = static_cast<const BF16*>(args.dout);
  auto* const to = static_cast<BF16*>(args.dqkv);
  Launch(stream, "AttentionBackward's sums",
         {dim3(unsigned(CeilDivide(rows * 8, kThreads))), dim3(kThreads)}, DeltaKernel, rows,
         static_cast<const BF16*>(args.out), dfrom, args.delta);
  WithDrops(stream, batch, form, [&](auto drops, const KeptScores& kept) {
    constexpr bool kDrops = decltype(drops)::value;
    Launch(stream, "AttentionBackward of queries", ShapeOf(batch, form.heads, 6, 0),
           QueryGradientKernel<kDrops>, batch.starts, form.heads, kept, from, args.lse, dfrom,
           args.delta, to);
    Launch(stream, "AttentionBackward of keys", ShapeOf(batch, form.heads, 6, 2 * kTile),
           KeyValueGradientKernel<kDrops>, batch.starts, form.heads, kept, from, args.lse, dfrom,
           args.delta, to);
  });
}

}  // namespace troop::cuda
