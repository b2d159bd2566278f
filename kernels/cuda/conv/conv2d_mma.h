#pragma once

#include "kernels/cuda/conv/conv2d_operands.h"

// Tiled products over the operations of conv2d_operands.h. Device code for conv*.cu. A block
// computes one tile of c over k from first_k to end_k; blockIdx.x counts tiles along m, blockIdx.y
// along n.
namespace troop::cuda {

constexpr int kTileThreads = 256;

// --- f32 on CUDA cores, any sizes.
// 64 x 64 sums per block, 4 x 4 of them in the registers of each thread: 16 FMA per 8 floats that
// are read from shared memory.
constexpr int kPlainTile = 64, kPlainDepth = 16;

// Loads kPlainDepth elements along k of both operands, multiplies, and repeats.
template <class Op>
TROOP_DEVICE void PlainTile(const Op& op, int first_k, int end_k) {
  // Tiles [kPlainDepth, 64 + 4]; the padding avoids bank conflicts of the stores.
  TROOP_SHARED(float, a, kPlainDepth*(kPlainTile + 4));
  TROOP_SHARED(float, b, kPlainDepth*(kPlainTile + 4));
  constexpr int kLd = kPlainTile + 4;
  const int m0 = int(blockIdx.x) * kPlainTile, n0 = int(blockIdx.y) * kPlainTile;
  // Each thread loads four elements along k of one row of each operand.
  const int load_row = int(threadIdx.x) % kPlainTile, load_k = int(threadIdx.x) / kPlainTile * 4;
  const int row = int(threadIdx.x) / 16 * 4, column = int(threadIdx.x) % 16 * 4;
  const bool has_m = m0 + load_row < op.m_size, has_n = n0 + load_row < op.n_size;
  const auto row_a = op.StartA(has_m ? m0 + load_row : 0);
  const auto row_b = op.StartB(has_n ? n0 + load_row : 0);
  float sum[4][4] = {};
  for (int k0 = first_k; k0 < end_k; k0 += kPlainDepth) {
    for (int j = 0; j < 4; ++j) {
      const int k = k0 + load_k + j;
      a[(load_k + j) * kLd + load_row] = has_m && k < end_k ? op.A(row_a, k) : 0;
      b[(load_k + j) * kLd + load_row] = has_n && k < end_k ? op.B(row_b, k) : 0;
    }
    __syncthreads();
    for (int k = 0; k < kPlainDepth; ++k) {
      // Outer product of four elements of a and four of b.
      float x[4], y[4];
      for (int i = 0; i < 4; ++i) x[i] = a[k * kLd + row + i];
      for (int i = 0; i < 4; ++i) y[i] = b[k * kLd + column + i];
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  // Partial tiles at the edges of c are computed and not stored.
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int m = m0 + row + i, n = n0 + column + j;
      if (m < op.m_size && n < op.n_size) op.Store(m, n, sum[i][j]);
    }
  }
}

// --- TF32 on tensor cores, any sizes.
// 128 x 64 sums per block, 16 deep, eight warps of 32 x 32. Inputs are f32 and converted to TF32
// when they are stored to shared memory. Rows there are padded by 8 elements, so that the 32 lanes
// of a fragment read 32 different banks. Double buffering: while one tile is multiplied, the next
// one is loaded into registers.
constexpr int kTF32M = 128, kTF32N = 64, kTF32Depth = 16;

// Stores the sums of a warp, 32 rows from (m, n) on, from the register layout of the tensor core
// instructions (MultiplyBF16).
template <class Op, int kColumns>
TROOP_DEVICE void StoreSums(const Op& op, int m, int n, const float (&sum)[2][kColumns][4]) {
  const int lane = int(threadIdx.x % 32);
  TROOP_UNROLL
  for (int i = 0; i < 2; ++i) {
    TROOP_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      TROOP_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = m + 16 * i + lane / 4 + e / 2 * 8;
        const int column = n + 8 * j + lane % 4 * 2 + e % 2;
        if (row < op.m_size && column < op.n_size) op.Store(row, column, sum[i][j][e]);
      }
    }
  }
}

// See the section comment. Two tiles of both inputs alternate in shared memory.
template <class Op>
TROOP_DEVICE void TF32Tile(const Op& op, int first_k, int end_k) {
  constexpr int kLdA = kTF32M + 8, kLdB = kTF32N + 8;
  constexpr int kSizeA = kTF32Depth * kLdA, kSizeB = kTF32Depth * kLdB;
  // elements that a thread carries
  constexpr int kEachA = kTF32M * kTF32Depth / kTileThreads;
  constexpr int kEachB = kTF32N * kTF32Depth / kTileThreads;
  TROOP_SHARED(std::uint32_t, tiles, 2 * (kSizeA + kSizeB));
  const int m0 = int(blockIdx.x) * kTF32M, n0 = int(blockIdx.y) * kTF32N;
  // Each thread loads a few elements, contiguous along k, of one row of each input.
  const int row_of_a = int(threadIdx.x) % kTF32M, k_of_a = int(threadIdx.x) / kTF32M * kEachA;
  const int row_of_b = int(threadIdx.x) % kTF32N, k_of_b = int(threadIdx.x) / kTF32N * kEachB;
  const bool has_a = m0 + row_of_a < op.m_size, has_b = n0 + row_of_b < op.n_size;
  const auto row_a = op.StartA(has_a ? m0 + row_of_a : 0);
  const auto row_b = op.StartB(has_b ? n0 + row_of_b : 0);
  // The next tile, on its way to shared memory. Elements outside of the operands are 0.
  std::uint32_t carry_a[kEachA], carry_b[kEachB];
  // fetch: global memory to registers; put: registers to a tile in shared memory.
  const auto fetch = [&](int k0) {
    TROOP_UNROLL
    for (int j = 0; j < kEachA; ++j) {
      const int k = k0 + k_of_a + j;
      carry_a[j] = ToTF32(has_a && k < end_k ? op.A(row_a, k) : 0.0f);
    }
    TROOP_UNROLL
    for (int j = 0; j < kEachB; ++j) {
      const int k = k0 + k_of_b + j;
      carry_b[j] = ToTF32(has_b && k < end_k ? op.B(row_b, k) : 0.0f);
    }
  };
  const auto put = [&](std::uint32_t* to) {
    TROOP_UNROLL
    for (int j = 0; j < kEachA; ++j) to[(k_of_a + j) * kLdA + row_of_a] = carry_a[j];
    TROOP_UNROLL
    for (int j = 0; j < kEachB; ++j) to[kSizeA + (k_of_b + j) * kLdB + row_of_b] = carry_b[j];
  };

  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  // Position of the warp in the tile; g and t as in MultiplyTF32.
  const int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32, g = lane / 4, t = lane % 4;
  float sum[2][4][4] = {};
  const auto multiply = [&](const std::uint32_t* a, const std::uint32_t* b) {
    TROOP_UNROLL
    for (int k = 0; k < kTF32Depth; k += 8) {
      // Fragments of 32 rows of a and 32 columns of b, 8 deep.
      std::uint32_t fa[2][4], fb[4][2];
      TROOP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t* const at = a + (k + t) * kLdA + warp_m + 16 * i + g;
        fa[i][0] = at[0], fa[i][1] = at[8];
        fa[i][2] = at[4 * kLdA], fa[i][3] = at[4 * kLdA + 8];
      }
      TROOP_UNROLL
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t* const at = b + (k + t) * kLdB + warp_n + 8 * j + g;
        fb[j][0] = at[0], fb[j][1] = at[4 * kLdB];
      }
      TROOP_UNROLL
      for (int i = 0; i < 2; ++i) {
        TROOP_UNROLL
        for (int j = 0; j < 4; ++j) MultiplyTF32(sum[i][j], fa[i], fb[j]);
      }
    }
  };

  // The main loop: fetch the next tile, multiply the current one, then store the fetched one.
  fetch(first_k);
  put(tiles);
  __syncthreads();
  int current = 0;
  for (int k0 = first_k; k0 < end_k; k0 += kTF32Depth) {
    const bool more = k0 + kTF32Depth < end_k;
    if (more) fetch(k0 + kTF32Depth);
    const std::uint32_t* tile = tiles + current * (kSizeA + kSizeB);
    multiply(tile, tile + kSizeA);
    current = 1 - current;
    if (more) put(tiles + current * (kSizeA + kSizeB));
    __syncthreads();
  }
  StoreSums(op, m0 + warp_m, n0 + warp_n, sum);
}

// --- bf16 on tensor cores, for runs of eight elements.
// 128 x kN sums per block (kN: 64 or 32), 32 deep; eight warps, four along m and two along n.
// Double buffering as above; u8 is converted to bf16 in registers. Rows in shared memory are padded
// by 16 bytes, so that the eight rows that LoadMatrix4 reads at a time lie in different banks.
constexpr int kMatrixM = 128, kMatrixDepth = 32;

// Index of element (row, k) in an input tile.
template <bool kAlongK, int kRows>
TROOP_DEVICE constexpr int TilePlace(int row, int k) {
  return kAlongK ? row * (kMatrixDepth + 8) + k : k * (kRows + 8) + row;
}
template <bool kAlongK, int kRows>
constexpr int TileElements() {
  return kAlongK ? kRows * (kMatrixDepth + 8) : kMatrixDepth * (kRows + 8);
}

// Row and k of the i-th run of eight that a thread carries to an input tile.
template <bool kAlongK, int kRows>
struct Carried {
  static constexpr int kRuns = kRows * kMatrixDepth / 8;
  static constexpr int kEach = (kRuns + kTileThreads - 1) / kTileThreads;
  TROOP_DEVICE static bool Mine(int i) { return int(threadIdx.x) + i * kTileThreads < kRuns; }
  TROOP_DEVICE static int Row(int i) {
    const int run = int(threadIdx.x) + i * kTileThreads;
    return kAlongK ? run / (kMatrixDepth / 8) : run % (kRows / 8) * 8;
  }
  TROOP_DEVICE static int K(int i) {
    const int run = int(threadIdx.x) + i * kTileThreads;
    return kAlongK ? run % (kMatrixDepth / 8) * 8 : run / (kRows / 8);
  }
};

// See the section comment. Each input is loaded in runs of eight along whichever axis is contiguous
// in memory; LoadMatrix4 or its transposed form then gives the same fragments.
template <class Op, int kN>
TROOP_DEVICE void MatrixTile(const Op& op, int first_k, int end_k) {
  constexpr bool kA = Op::kAAlongK, kB = Op::kBAlongK;
  using CarryA = Carried<kA, kMatrixM>;
  using CarryB = Carried<kB, kN>;
  constexpr int kSizeA = TileElements<kA, kMatrixM>(), kSizeB = TileElements<kB, kN>();
  TROOP_SHARED(BF16, tiles, 2 * (kSizeA + kSizeB));
  const int m0 = int(blockIdx.x) * kMatrixM, n0 = int(blockIdx.y) * kN;

  // Per-row state of each run that this thread loads.
  typename Op::RowA row_a[CarryA::kEach];
  typename Op::RowB row_b[CarryB::kEach];
  bool has_a[CarryA::kEach], has_b[CarryB::kEach];
  TROOP_UNROLL
  for (int i = 0; i < CarryA::kEach; ++i) {
    has_a[i] = CarryA::Mine(i) && m0 + CarryA::Row(i) < op.m_size;
    row_a[i] = op.StartA(has_a[i] ? m0 + CarryA::Row(i) : 0);
  }
  TROOP_UNROLL
  for (int i = 0; i < CarryB::kEach; ++i) {
    has_b[i] = CarryB::Mine(i) && n0 + CarryB::Row(i) < op.n_size;
    row_b[i] = op.StartB(has_b[i] ? n0 + CarryB::Row(i) : 0);
  }
  uint4 carry_a[CarryA::kEach], carry_b[CarryB::kEach];
  const auto fetch = [&](int k0) {
    TROOP_UNROLL
    for (int i = 0; i < CarryA::kEach; ++i) {
      const int k = k0 + CarryA::K(i);
      carry_a[i] = has_a[i] && k < end_k ? op.EightA(row_a[i], k) : make_uint4(0, 0, 0, 0);
    }
    TROOP_UNROLL
    for (int i = 0; i < CarryB::kEach; ++i) {
      const int k = k0 + CarryB::K(i);
      carry_b[i] = has_b[i] && k < end_k ? op.EightB(row_b[i], k) : make_uint4(0, 0, 0, 0);
    }
  };
  const auto put = [&](BF16* to) {
    TROOP_UNROLL
    for (int i = 0; i < CarryA::kEach; ++i) {
      if (!CarryA::Mine(i)) continue;
      *reinterpret_cast<uint4*>(to + TilePlace<kA, kMatrixM>(CarryA::Row(i), CarryA::K(i))) =
          carry_a[i];
    }
    TROOP_UNROLL
    for (int i = 0; i < CarryB::kEach; ++i) {
      if (!CarryB::Mine(i)) continue;
      *reinterpret_cast<uint4*>(to + kSizeA + TilePlace<kB, kN>(CarryB::Row(i), CarryB::K(i))) =
          carry_b[i];
    }
  };

  // Position of the warp in the tile.
  constexpr int kWarpN = kN / 2, kColumns = kWarpN / 8;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int warp_m = warp / 2 * 32, warp_n = warp % 2 * kWarpN;
  const int matrix = lane / 8, line = lane % 8;  // the address that this lane passes to LoadMatrix4
  float sum[2][kColumns][4] = {};
  const auto multiply = [&](const BF16* a, const BF16* b) {
    TROOP_UNROLL
    for (int k = 0; k < kMatrixDepth; k += 16) {
      // Fragments of 32 rows of a and kWarpN columns of b, 16 deep.
      std::uint32_t fa[2][4], fb[kColumns][2];
      TROOP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int m = warp_m + 16 * i + matrix % 2 * 8, depth = k + matrix / 2 * 8;
        if constexpr (kA) {
          LoadMatrix4(fa[i], a + TilePlace<kA, kMatrixM>(m + line, depth));
        } else {
          LoadMatrix4Transposed(fa[i], a + TilePlace<kA, kMatrixM>(m, depth + line));
        }
      }
      TROOP_UNROLL
      for (int j = 0; j < kColumns; j += 2) {
        const int n = warp_n + 8 * j + matrix / 2 * 8, depth = k + matrix % 2 * 8;
        // One load gives the fragments of two adjacent 8-column tiles.
        std::uint32_t both[4];
        if constexpr (kB) {
          LoadMatrix4(both, b + TilePlace<kB, kN>(n + line, depth));
        } else {
          LoadMatrix4Transposed(both, b + TilePlace<kB, kN>(n, depth + line));
        }
        fb[j][0] = both[0], fb[j][1] = both[1];
        fb[j + 1][0] = both[2], fb[j + 1][1] = both[3];
      }
      TROOP_UNROLL
      for (int i = 0; i < 2; ++i) {
        TROOP_UNROLL
        for (int j = 0; j < kColumns; ++j) MultiplyBF16(sum[i][j], fa[i], fb[j]);
      }
    }
  };

  // Main loop: fetch the next tile, multiply the current one, store the fetched one.
  fetch(first_k);
  put(tiles);
  __syncthreads();
  int current = 0;
  for (int k0 = first_k; k0 < end_k; k0 += kMatrixDepth) {
    const bool more = k0 + kMatrixDepth < end_k;
    if (more) fetch(k0 + kMatrixDepth);
    const BF16* tile = tiles + current * (kSizeA + kSizeB);
    multiply(tile, tile + kSizeA);
    current = 1 - current;
    // No thread still reads that tile: all have passed the barrier after its products.
    if (more) put(tiles + current * (kSizeA + kSizeB));
    __syncthreads();
  }
  StoreSums(op, m0 + warp_m, n0 + warp_n, sum);
}

}  // namespace troop::cuda
