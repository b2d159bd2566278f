// Gradient of the weights for conv2d_images.h: each block sums over its images, and a second kernel
// adds the blocks' sums in a fixed order.
#include "kernels/cuda/conv/conv2d_images.h"
#include "kernels/cuda/conv/conv2d_images_device.h"

namespace troop::cuda {
namespace {

// A block sums over its share of the images, some images at a time. Eight warps handle 32 columns
// of taps each. The other eight handle the same columns and alternate with them in groups of 16
// positions. blockIdx.x selects the images, blockIdx.y the columns.
template <class X>
struct WeightOfImages {
  ConvSizes s;
  int batch, block_images, images;  // images in the batch, per block, and per buffer
  int runs, block_columns;
  int gradients_at, patches_at;  // byte offsets in a buffer, after the images
  int buffer;                    // bytes of a buffer; bf16 uses two, u8 one
  const X* x;
  const BF16* dz;
  float* partial;  // [parts, filters taps + filters]
};

constexpr int kWeightThreads = 512, kHalfThreads = kWeightThreads / 2;
constexpr int kWeightColumns = kHalfThreads / kWarp * 32;
constexpr int kDepth = 32;  // positions per iteration

// Shared memory for the final exchange, in floats: sums of bias gradients, and the sums of the
// second half of the warps.
constexpr int kBiasSums = kWeightThreads * kRun;
constexpr int MeetingFloats(int rows) { return kBiasSums + rows * 16 * kHalfThreads; }

// kRows: filters / 16.
template <class X, int kRows>
TROOP_KERNEL void __launch_bounds__(kWeightThreads, 1) WeightKernel(WeightOfImages<X> op) {
  std::byte* const shared = DynamicShared();
  const ConvSizes& s = op.s;
  const int begin = int(blockIdx.x) * op.block_images;
  const int end = op.batch - begin < op.block_images ? op.batch : begin + op.block_images;
  const int image = s.height * s.width * s.channels, outputs = s.out_height * s.out_width;
  constexpr int kFilters = 16 * kRows, kRowBytes = kFilters * int(sizeof(BF16));

  const LanePlace place;
  const int half = int(threadIdx.x) / kHalfThreads;
  const int warp = int(threadIdx.x) % kHalfThreads / kWarp;
  const int column = int(blockIdx.y) * op.block_columns + 32 * warp;
  const bool mine = 32 * warp < op.block_columns && column < s.taps();
  // Byte offsets of the two runs of taps that this lane addresses.
  int offset[2];
  TROOP_UNROLL
  for (int u = 0; u < 2; ++u) {
    const int run = column / kRun + 2 * u + place.matrix / 2;
    offset[u] = run < op.runs ? RunOffset(s, run) : 0;
  }
  float sum[kRows][4][4] = {};
  // Bias gradients: a thread sums eight filters over some positions.
  const bool biases = blockIdx.y == 0;
  constexpr int kFilterRuns = kFilters / kRun, kGroups = kWeightThreads / kFilterRuns;
  const int filter_run = int(threadIdx.x) % kFilterRuns, group = int(threadIdx.x) / kFilterRuns;
  float bias[kRun] = {};

  const auto count_of = [&](int first) {
    return end - first < op.images ? end - first : op.images;
  };
  const auto padded_of = [](int positions) { return (positions + kDepth - 1) / kDepth * kDepth; };
  // Loads some images, their gradients followed by zeros up to kDepth, and the offsets of the
  // patches of their positions.
  const auto load = [&](int first, std::byte* images) {
    std::byte* const gradients = images + op.gradients_at;
    int* const patches = reinterpret_cast<int*>(images + op.patches_at);
    const int count = count_of(first), positions = count * outputs, padded = padded_of(positions);
    CopyRuns<kWeightThreads>(gradients, op.dz + std::int64_t(first) * outputs * kFilters,
                             positions * kFilterRuns);
    for (int i = positions * kFilterRuns + int(threadIdx.x); i < padded * kFilterRuns;
         i += kWeightThreads) {
      *reinterpret_cast<uint4*>(gradients + Swizzled(kRunBytes * i)) = make_uint4(0, 0, 0, 0);
    }
    for (int i = int(threadIdx.x); i < padded; i += kWeightThreads)
      patches[i] = i < positions ? PatchOffset(s, i) : 0;
    CopyRuns<kWeightThreads>(images, op.x + std::int64_t(first) * image, count * (image / kRun));
    CopyCommit();
  };

  // Two buffers: the next images load during the products.
  constexpr bool kTwo = std::is_same_v<X, BF16>;
  if (kTwo) load(begin, shared);
  for (int first = begin, turn = 0; first < end; first += op.images, turn = kTwo ? 1 - turn : 0) {
    if (!kTwo) load(first, shared);
    if (kTwo && first + op.images < end) {
      load(first + op.images, shared + (1 - turn) * op.buffer);
      CopyWait<1>();
    } else {
      CopyWait<0>();
    }
    __syncthreads();
    const std::byte* const images = shared + turn * op.buffer;
    const std::byte* const gradients = images + op.gradients_at;
    const int* const patches = reinterpret_cast<const int*>(images + op.patches_at);
    const int positions = count_of(first) * outputs;
    if (biases) {
      for (int i = group; i < positions; i += kGroups) {
        const uint4 run = *reinterpret_cast<const uint4*>(
            gradients + Swizzled(i * kRowBytes + kRunBytes * filter_run));
        const unsigned pair[4] = {run.x, run.y, run.z, run.w};
        TROOP_UNROLL
        for (int j = 0; j < 4; ++j) {
          bias[2 * j] += __uint_as_float(pair[j] << 16);
          bias[2 * j + 1] += __uint_as_float(pair[j] & 0xffff0000u);
        }
      }
    }
    const int of_patch = place.matrix % 2 * 8 + place.line;
    const int padded = mine ? padded_of(positions) : 0;
    int patch = patches[16 * half + of_patch];
    // The groups of 16 positions of this half of the warps.
    for (int at = 16 * half; at < padded; at += kDepth) {
      std::uint32_t a[kRows][4], b[2][4];
      TROOP_UNROLL
      for (int u = 0; u < 2; ++u) LoadMatrix4Transposed(b[u], images + Swizzled(patch + offset[u]));
      const int row = (at + place.matrix / 2 * 8 + place.line) * kRowBytes;
      TROOP_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const int filter = 16 * i + place.matrix % 2 * 8;
        LoadMatrix4Transposed(a[i], gradients + Swizzled(row + filter * int(sizeof(BF16))));
      }
      // Loaded while the current operands are multiplied.
      patch = patches[(at + kDepth < padded ? at + kDepth : 0) + of_patch];
      TROOP_UNROLL
      for (int u = 0; u < 2; ++u) {
        const std::uint32_t left[2] = {b[u][0], b[u][1]}, right[2] = {b[u][2], b[u][3]};
        TROOP_UNROLL
        for (int i = 0; i < kRows; ++i) {
          MultiplyBF16(sum[i][2 * u], a[i], left);
          MultiplyBF16(sum[i][2 * u + 1], a[i], right);
        }
      }
    }
    __syncthreads();  // before the next but one overwrites them
  }

  // The first half of the warps adds the sums of the second half; the second half sums the bias
  // gradients.
  float* const meeting = reinterpret_cast<float*>(shared);
  float* const theirs = meeting + kBiasSums + int(threadIdx.x) % kHalfThreads;
  TROOP_UNROLL
  for (int j = 0; j < kRun; ++j) meeting[group * kFilters + kRun * filter_run + j] = bias[j];
  if (half == 1) {
    TROOP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TROOP_UNROLL
      for (int e = 0; e < 16; ++e) theirs[(16 * i + e) * kHalfThreads] = sum[i][e / 4][e % 4];
    }
  }
  __syncthreads();
  // Partial sums of this block: weights, then biases.
  float* const to = op.partial + std::int64_t(blockIdx.x) * kFilters * (s.taps() + 1);
  if (half == 1) {
    const int filter = int(threadIdx.x) % kHalfThreads;
    if (!biases || filter >= kFilters) return;
    float all = 0;
    for (int g = 0; g < kGroups; ++g) all += meeting[g * kFilters + filter];
    to[kFilters * s.taps() + filter] = all;
    return;
  }
  if (!mine) return;
  TROOP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    TROOP_UNROLL
    for (int e = 0; e < 16; ++e) sum[i][e / 4][e % 4] += theirs[(16 * i + e) * kHalfThreads];
  }
  // Stores pairs of adjacent taps.
  const int lane = int(threadIdx.x % kWarp);
  TROOP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    TROOP_UNROLL
    for (int line = 0; line < 2; ++line) {
      const int filter = 16 * i + lane / 4 + 8 * line;
      TROOP_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int tap = column + 8 * j + lane % 4 * 2;
        if (tap >= s.taps()) continue;
        *reinterpret_cast<float2*>(to + filter * s.taps() + tap) =
            make_float2(sum[i][j][2 * line], sum[i][j][2 * line + 1]);
      }
    }
  }
}

// dweight and dbias: the sum of each of n columns over the parts, in a fixed order. The first
// `weights` columns are multiplied by scale; the others are bias gradients.
constexpr int kSumColumns = 32, kSumRows = 8;
TROOP_KERNEL void __launch_bounds__(256)
    SumImagesKernel(int n, int weights, int parts, float scale, const float* partial,
                    float* dweight, float* dbias) {
  TROOP_SHARED(float, sums, kSumRows*(kSumColumns + 1));
  const int lane = int(threadIdx.x) % kSumColumns, row = int(threadIdx.x) / kSumColumns;
  const int i = int(blockIdx.x) * kSumColumns + lane;
  float sum = 0;
  if (i < n) {
    for (int p = row; p < parts; p += kSumRows) sum += partial[std::int64_t(p) * n + i];
  }
  sums[row * (kSumColumns + 1) + lane] = sum;
  __syncthreads();
  if (row != 0 || i >= n) return;
  float all = 0;
  for (int r = 0; r < kSumRows; ++r) all += sums[r * (kSumColumns + 1) + lane];
  if (i < weights) {
    dweight[i] = scale * all;
  } else {
    dbias[i - weights] = all;
  }
}

// Division of the work. splits: blocks along the taps; block_columns: taps per block.
struct WeightParts {
  std::int64_t parts = 0, block_images = 0, images = 0, buffers = 0;
  std::int64_t splits = 0, block_columns = 0;
};
// Returns parts = 0 if the sizes are not supported.
WeightParts PartsOf(const ConvShape& s, std::int64_t batch, bool bytes) {
  const std::int64_t filters = s.filters;
  const bool rows = filters == 16 || filters == 32 || filters == 64;
  if (batch == 0 || !rows || !RunsOfEightTaps(s)) return {};
  const std::int64_t taps = s.kernel * s.kernel * s.channels;
  const std::int64_t outputs = s.out_height() * s.out_width(), bf16 = sizeof(BF16);
  // Bytes per image: x, gradients and offsets of patches.
  const std::int64_t each = s.height * s.width * s.channels * bf16 +
                            outputs * (filters * bf16 + std::int64_t(sizeof(int)));
  // Padding of the positions, and rounding of the three pieces of a buffer.
  const std::int64_t fixed = kDepth * (filters * bf16 + std::int64_t(sizeof(int))) + 3 * kLine;
  // u8 is converted to bf16 in registers, which does not overlap with the products. So u8 uses all
  // of the memory as one buffer.
  const std::int64_t room = bytes ? kMostShared : kMostShared / 2 / kLine * kLine;
  if (fixed + each > room) return {};
  WeightParts p;
  p.buffers = bytes ? 1 : 2;
  p.splits = CeilDivide(taps, std::int64_t(kWeightColumns));
  p.block_columns = RoundUp(CeilDivide(taps, p.splits), 32);
  p.block_images = CeilDivide(batch, std::max<std::int64_t>(1, kMultiprocessors / p.splits));
  p.parts = CeilDivide(batch, p.block_images);
  const std::int64_t fit = (room - fixed) / each;
  p.images = CeilDivide(p.block_images, CeilDivide(p.block_images, fit));
  return p;
}

template <class X>
void Weight(Stream& stream, const WeightParts& p, const ConvBackwardWeightArgs& args) {
  const ConvShape& shape = args.shape;
  float* const scratch = static_cast<float*>(args.scratch);
  WeightOfImages<X> op{.s = ConvSizes(shape),
                       .batch = int(args.batch),
                       .block_images = int(p.block_images),
                       .images = int(p.images),
                       .x = static_cast<const X*>(args.input.x),
                       .dz = static_cast<const BF16*>(args.dz),
                       .partial = scratch};
  const std::int64_t bf16 = sizeof(BF16);
  const std::int64_t positions = RoundUp(p.images * shape.out_height() * shape.out_width(), kDepth);
  op.runs = op.s.taps() / kRun;
  op.block_columns = int(p.block_columns);
  op.gradients_at =
      int(RoundUp(p.images * shape.height * shape.width * shape.channels * bf16, kLine));
  op.patches_at = int(op.gradients_at + RoundUp(positions * shape.filters * bf16, kLine));
  op.buffer = int(RoundUp(op.patches_at + positions * std::int64_t(sizeof(int)), kLine));
  const std::int64_t bytes = (p.images < p.block_images ? p.buffers : 1) * op.buffer;
  const std::int64_t meeting = MeetingFloats(int(shape.filters / 16)) * std::int64_t(sizeof(float));
  const LaunchShape launch{dim3(unsigned(p.parts), unsigned(p.splits)), dim3(kWeightThreads),
                           std::size_t(std::max(bytes, meeting))};
  Launch(stream, "ConvBackwardWeight of images", launch,
         shape.filters == 64   ? WeightKernel<X, 4>
         : shape.filters == 32 ? WeightKernel<X, 2>
                               : WeightKernel<X, 1>,
         op);
  const int weights = op.s.taps() * op.s.filters, n = weights + op.s.filters;
  Launch(stream, "ConvSumParts of images",
         {dim3(unsigned(CeilDivide(n, kSumColumns))), dim3(kSumColumns * kSumRows)},
         SumImagesKernel, n, weights, int(p.parts),
         args.input.dtype == DType::kU8 ? args.input.scale : 1.0f, scratch, args.dweight,
         args.dbias);
}

}  // namespace

std::int64_t BackwardWeightByImagesScratch(const ConvShape& shape, std::int64_t batch) {
  const std::int64_t taps = shape.kernel * shape.kernel * shape.channels;
  const std::int64_t parts =
      std::max(PartsOf(shape, batch, false).parts, PartsOf(shape, batch, true).parts);
  return parts * shape.filters * (taps + 1) * std::int64_t(sizeof(float));
}

bool BackwardWeightByImages(Stream& stream, const ConvBackwardWeightArgs& args) {
  const bool bytes = args.input.dtype == DType::kU8;
  const WeightParts parts = PartsOf(args.shape, args.batch, bytes);
  // The plan assumes the shared memory of compute capability 9.0.
  if (parts.parts == 0 || SharedOf(stream) < kMostShared) return false;
  if (bytes) {
    Weight<std::uint8_t>(stream, parts, args);
  } else {
    Weight<BF16>(stream, parts, args);
  }
  return true;
}

}  // namespace troop::cuda
