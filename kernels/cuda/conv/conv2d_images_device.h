#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/conv/conv2d_operands.h"
#include "kernels/cuda/runtime/launch.h"

// Device code shared by the kernels that keep whole images in shared memory (conv2d_images.h).
// Included only by conv_images*.cu.
namespace troop::cuda {

constexpr int kRun = 8, kRunBytes = 16;  // a run: eight contiguous bf16
constexpr int kWarp = 32;
constexpr int kMultiprocessors =
    132;  // fixed, because the order of sums must not depend on the GPU
// Maximum shared memory of a block in bytes, at compute capability 9.0.
constexpr std::int64_t kMostShared = 232448;

// Swizzle: within each 128 bytes of shared memory the runs are permuted by the index of those 128
// bytes. The eight rows that LoadMatrix4 reads at a time then lie in different banks, for row
// distances of 32, 64 and 128 bytes.
constexpr std::int64_t kLine = 128;
TROOP_DEVICE int Swizzled(int byte) { return byte ^ (byte >> 3 & 0x70); }

// Copies `runs` contiguous runs from global memory to an image in shared memory. Bytes are
// converted to bf16.
template <int kThreads>
TROOP_DEVICE void CopyRuns(std::byte* to, const BF16* from, int runs) {
  for (int i = int(threadIdx.x); i < runs; i += kThreads)
    CopyAsync16(to + Swizzled(kRunBytes * i), from + std::int64_t(kRun) * i);
}
template <int kThreads>
TROOP_DEVICE void CopyRuns(std::byte* to, const std::uint8_t* from, int runs) {
  const auto put = [&](int run, unsigned first, unsigned second) {
    *reinterpret_cast<uint4*>(to + Swizzled(kRunBytes * run)) = EightAsBF16(first, second);
  };
  // Two runs at a time (16 bytes) if the source is 16-byte aligned.
  constexpr int kUnderWay = 4;  // loads in flight per thread
  const int pairs = reinterpret_cast<std::uintptr_t>(from) % 16 == 0 ? runs / 2 : 0;
  for (int first = int(threadIdx.x); first < pairs; first += kUnderWay * kThreads) {
    uint4 pair[kUnderWay];
    TROOP_UNROLL
    for (int j = 0; j < kUnderWay; ++j) {
      const int i = first + j * kThreads;
      if (i < pairs) pair[j] = *reinterpret_cast<const uint4*>(from + std::int64_t(2 * kRun) * i);
    }
    TROOP_UNROLL
    for (int j = 0; j < kUnderWay; ++j) {
      const int i = first + j * kThreads;
      if (i >= pairs) continue;
      put(2 * i, pair[j].x, pair[j].y);
      put(2 * i + 1, pair[j].z, pair[j].w);
    }
  }
  for (int i = 2 * pairs + int(threadIdx.x); i < runs; i += kThreads) {
    const uint2 one = *reinterpret_cast<const uint2*>(from + std::int64_t(kRun) * i);
    put(i, one.x, one.y);
  }
}

// The matrix (0 to 3) and the row of it whose address LoadMatrix4 takes from this lane.
struct LanePlace {
  int matrix = int(threadIdx.x % kWarp) / 8, line = int(threadIdx.x % 8);
};

// Tile of sums of a warp: 16 kI rows by 8 kJ columns. The depth is processed in steps of 16.
template <int kI, int kJ>
struct WarpTile {
  static constexpr int kRows = 16 * kI, kColumns = 8 * kJ, kPairs = 2 * kI * kJ;
  float sum[kI][kJ][4] = {};

  // Fragments of one step, as the tensor core instruction takes them.
  struct Operands {
    std::uint32_t a[kI][4], b[kJ][2];
    // of_a(i): address of this lane's row in the i-th 16 rows of a. of_b(j): the same for the j-th
    // 16 columns of b, whose 16 elements along the depth are contiguous, or (kTransposed) whose
    // rows are.
    template <bool kTransposed, class A, class B>
    TROOP_DEVICE void Load(const A& of_a, const B& of_b) {
      TROOP_UNROLL
      for (int i = 0; i < kI; ++i) LoadMatrix4(a[i], of_a(i));
      TROOP_UNROLL
      for (int j = 0; j < kJ / 2; ++j) {
        std::uint32_t both[4];
        if constexpr (kTransposed) {
          LoadMatrix4Transposed(both, of_b(j));
        } else {
          LoadMatrix4(both, of_b(j));
        }
        b[2 * j][0] = both[0], b[2 * j][1] = both[1];
        b[2 * j + 1][0] = both[2], b[2 * j + 1][1] = both[3];
      }
    }
  };
  TROOP_DEVICE void Multiply(const Operands& o) {
    TROOP_UNROLL
    for (int j = 0; j < kJ; ++j) {
      TROOP_UNROLL
      for (int i = 0; i < kI; ++i) MultiplyBF16(sum[i][j], o.a[i], o.b[j]);
    }
  }
  // Accumulates `steps` products; load(operands) loads the fragments of the next step.
  template <class Load>
  TROOP_DEVICE void MultiplySteps(int steps, const Load& load) {
    for (int step = 0; step < steps; ++step) {
      Operands operands;
      load(operands);
      Multiply(operands);
    }
  }
  // Calls use(there, column, which) for each pair of neighboring sums of this lane, `which` being
  // the index of the pair. there = row(r) is the output offset of row r; if it is negative, the row
  // is skipped.
  template <class Row, class Use>
  TROOP_DEVICE static void ForPlaces(const Row& row, const Use& use) {
    const int lane = int(threadIdx.x % kWarp);
    TROOP_UNROLL
    for (int i = 0; i < kI; ++i) {
      TROOP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::int64_t there = row(16 * i + lane / 4 + 8 * half);
        if (there < 0) continue;
        TROOP_UNROLL
        for (int j = 0; j < kJ; ++j) use(there, 8 * j + lane % 4 * 2, (2 * i + half) * kJ + j);
      }
    }
  }
  // Calls each(there, column, which, x, y) with the two sums x and y of each pair.
  template <class Row, class Each>
  TROOP_DEVICE void ForPairs(const Row& row, const Each& each) const {
    ForPlaces(row, [&](std::int64_t there, int column, int which) {
      const int line = which / kJ, j = which % kJ;
      each(there, column, which, sum[line / 2][j][2 * (line % 2)],
           sum[line / 2][j][2 * (line % 2) + 1]);
    });
  }
};

// The activation of a sum; ReLU keeps NaN.
TROOP_DEVICE float Active(Activation activation, float z) {
  if (activation == Activation::kRelu) return z > 0 ? z : z != z ? z : 0;
  return activation == Activation::kTanh ? tanhf(z) : z;
}

// Byte offset of a run of taps from the first tap.
TROOP_DEVICE int RunOffset(const ConvSizes& s, int run) {
  return TapOffset(s, run * kRun) * int(sizeof(BF16));
}
// Byte offset of the first tap of an output position, in contiguous images.
TROOP_DEVICE int PatchOffset(const ConvSizes& s, int position) {
  const int rest = s.by_out_width.Quotient(position), q = position - rest * s.out_width;
  const int image = s.by_out_height.Quotient(rest), p = rest - image * s.out_height;
  return ((image * s.height + p * s.stride) * s.width + q * s.stride) * s.channels *
         int(sizeof(BF16));
}

// Smallest multiple of `to` that is at least n.
constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Copies the weights of the filters to shared memory, `pitch` bytes apart; a warp copies one filter
// run by run. Filters and runs beyond the actual ones become 0.
template <int kThreads>
TROOP_DEVICE void CopyFilters(std::byte* to, int pitch, const BF16* from, int filters, int runs,
                              int all_filters, int all_runs) {
  for (int filter = int(threadIdx.x) / kWarp; filter < all_filters; filter += kThreads / kWarp) {
    for (int run = int(threadIdx.x) % kWarp; run < all_runs; run += kWarp) {
      const bool valid = filter < filters && run < runs;
      const std::int64_t at = valid ? (std::int64_t(filter) * runs + run) * kRun : 0;
      CopyAsync16(to + filter * pitch + kRunBytes * run, from + at, valid);
    }
  }
}

// Threads of a block of the wide kernels.
constexpr int kProductThreads = 512;

// True if each row of taps consists of whole, aligned runs.
inline bool RunsOfEightTaps(const ConvShape& s) {
  return s.width * s.channels % kRun == 0 && s.stride * s.channels % kRun == 0 &&
         s.kernel * s.channels % kRun == 0 && s.kernel * s.channels > kRun;
}

// True if the weights, with each filter padded to an odd number of runs (against bank conflicts),
// take less than the shared memory of a block.
inline bool WeightsFit(std::int64_t filters, const ConvShape& s) {
  const std::int64_t taps = s.kernel * s.kernel * s.channels;
  return filters * (taps + 2 * kRun) * std::int64_t(sizeof(BF16)) < kMostShared;
}

// Images per block: as many as fit, but no more than keep all multiprocessors equally busy. 0 if
// not even one fits.
inline std::int64_t ImagesOfBlock(std::int64_t batch, std::int64_t fixed, std::int64_t each,
                                  std::int64_t shared, std::int64_t blocks) {
  const std::int64_t fit = (shared - fixed) / each;
  if (fixed + each > shared) return 0;
  // Rounds of all blocks with the largest fit; the images are spread evenly over them.
  const std::int64_t rounds = CeilDivide(batch, fit * blocks);
  return CeilDivide(batch, rounds * blocks);
}

// Usable shared memory of a block on this device, in bytes.
inline std::int64_t SharedOf(const Stream& stream) {
  return std::min<std::int64_t>(kMostShared, std::int64_t(stream.device().info().shared_bytes));
}

}  // namespace troop::cuda
