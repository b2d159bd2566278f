// Forward pass of conv2d_images.h: a block keeps some whole images and all weights in shared
// memory; each warp computes tiles of output positions x filters.
#include "kernels/cuda/conv/conv2d_images.h"
#include "kernels/cuda/conv/conv2d_images_device.h"

namespace troop::cuda {
namespace {

template <class X>
struct ForwardOfImages {
  ConvSizes s;
  int batch, images;       // images in the batch, and per block
  int runs, steps;         // runs of a filter's weights; steps of 16 taps
  int groups;              // warp tiles along the filters
  int pitch;               // bytes between filters: an odd number of runs, against conflicts
  int bias_at, images_at;  // byte offsets in shared memory, after the weights
  const X* x;
  const BF16* weight;
  const float* bias;
  BF16* y;
  float scale;
  Activation activation;
};

// kWide: 64 filters per warp and one block per multiprocessor; otherwise 32 and two.
template <class X, bool kWide>
TROOP_KERNEL void __launch_bounds__(kWide ? kProductThreads : 256, kWide ? 1 : 2)
    ForwardKernel(ForwardOfImages<X> op) {
  constexpr int kThreads = kWide ? kProductThreads : 256;
  using Tile = WarpTile<kWide ? 2 : 4, kWide ? 8 : 4>;
  std::byte* const shared = DynamicShared();
  std::byte* const images = shared + op.images_at;
  const ConvSizes& s = op.s;
  const int first = int(blockIdx.x) * op.images;
  const int count = op.batch - first < op.images ? op.batch - first : op.images;
  const int image = s.height * s.width * s.channels;

  // Load weights, biases and images.
  CopyFilters<kThreads>(shared, op.pitch, op.weight, s.filters, op.runs, Tile::kColumns * op.groups,
                        2 * op.steps);
  float* const bias = reinterpret_cast<float*>(shared + op.bias_at);
  for (int i = int(threadIdx.x); i < Tile::kColumns * op.groups; i += kThreads)
    bias[i] = i < s.filters ? op.bias[i] : 0;
  CopyRuns<kThreads>(images, op.x + std::int64_t(first) * image, count * (image / kRun));
  CopyCommit();
  CopyWait<0>();
  __syncthreads();

  // Each warp takes every (number of warps)-th tile.
  const LanePlace place;
  const int rows = count * s.out_height * s.out_width;
  const int tap_row_runs = s.by_tap_row.divisor() / kRun;
  const int jump = (s.width * s.channels - s.by_tap_row.divisor()) * int(sizeof(BF16));
  const int units = (rows + Tile::kRows - 1) / Tile::kRows * op.groups;
  for (int unit = int(threadIdx.x) / kWarp; unit < units; unit += kThreads / kWarp) {
    const int tile = unit / op.groups, group = unit - tile * op.groups;
    // Byte offsets of the patches whose addresses this lane passes to LoadMatrix4.
    int patch[Tile::kRows / 16];
    TROOP_UNROLL
    for (int i = 0; i < Tile::kRows / 16; ++i) {
      const int row = Tile::kRows * tile + 16 * i + place.matrix % 2 * 8 + place.line;
      patch[i] = PatchOffset(s, row < rows ? row : 0);
    }
    const std::byte* filters =
        shared + (Tile::kColumns * group + place.matrix / 2 * 8 + place.line) * op.pitch +
        place.matrix % 2 * kRunBytes;
    // This lane's run of taps, its index in the kernel row, and its byte offset from the first tap.
    int run = place.matrix / 2, in_row = run, offset = run * kRunBytes;
    Tile product;
    product.MultiplySteps(op.steps, [&](typename Tile::Operands& operands) {
      const int at = run < op.runs ? offset : 0;
      operands.template Load<false>([&](int i) { return images + Swizzled(patch[i] + at); },
                                    [&](int j) { return filters + 16 * j * op.pitch; });
      filters += 2 * kRunBytes, run += 2, in_row += 2, offset += 2 * kRunBytes;
      if (in_row >= tap_row_runs) in_row -= tap_row_runs, offset += jump;
    });
    // Scale, bias and activation, then the store.
    BF16* const to = op.y + std::int64_t(first) * s.out_height * s.out_width * s.filters;
    product.ForPairs(
        [&](int row) {
          row += Tile::kRows * tile;
          return row < rows ? std::int64_t(row) * s.filters : -1;
        },
        [&](std::int64_t there, int column, int, float a, float b) {
          column += Tile::kColumns * group;
          if (column >= s.filters) return;
          a = Active(op.activation, a * op.scale + bias[column]);
          b = Active(op.activation, b * op.scale + bias[column + 1]);
          *reinterpret_cast<std::uint32_t*>(to + there + column) = ToBF16x2(a, b);
        });
  }
}

template <class X>
bool Forward(Stream& stream, const ConvForwardArgs& args) {
  const ConvShape& shape = args.shape;
  const std::int64_t batch = args.batch;
  ForwardOfImages<X> op{.s = ConvSizes(shape),
                        .batch = int(batch),
                        .x = static_cast<const X*>(args.input.x),
                        .weight = static_cast<const BF16*>(args.weight),
                        .bias = args.bias,
                        .y = static_cast<BF16*>(args.y),
                        .scale = args.input.dtype == DType::kU8 ? args.input.scale : 1.0f,
                        .activation = args.activation};
  const bool wide = shape.filters > 32;
  const int columns = wide ? 64 : 32;
  // Also excludes sizes whose offsets would overflow 32 bits.
  if (!WeightsFit(RoundUp(shape.filters, columns), shape)) return false;
  // Layout of shared memory: weights, biases, images.
  op.runs = op.s.taps() / kRun;
  op.steps = (op.runs + 1) / 2;
  op.groups = (op.s.filters + columns - 1) / columns;
  op.pitch = (2 * op.steps + 1) * kRunBytes;
  op.bias_at = columns * op.groups * op.pitch;
  op.images_at =
      int(RoundUp(op.bias_at + columns * op.groups * std::int64_t(sizeof(float)), kLine));
  const std::int64_t each =
      shape.height * shape.width * shape.channels * std::int64_t(sizeof(BF16));
  // If a multiprocessor has room for two blocks, one loads while the other multiplies.
  constexpr std::int64_t kHalf = kMostShared / 2 - 1024;
  const std::int64_t shared = SharedOf(stream), fixed = op.images_at + kLine;
  const bool halves = !wide && fixed + each <= std::min(shared, kHalf);
  const std::int64_t images =
      ImagesOfBlock(batch, fixed, each, halves ? std::min(shared, kHalf) : shared,
                    (halves ? 2 : 1) * kMultiprocessors);
  if (images == 0) return false;
  op.images = int(images);
  const LaunchShape launch{dim3(unsigned(CeilDivide(batch, images))),
                           dim3(wide ? kProductThreads : 256),
                           std::size_t(op.images_at + RoundUp(images * each, kLine))};
  Launch(stream, "ConvForward of images", launch,
         wide ? ForwardKernel<X, true> : ForwardKernel<X, false>, op);
  return true;
}

}  // namespace

bool ForwardByImages(Stream& stream, const ConvForwardArgs& args) {
  if (args.batch == 0 || !RunsOfEightTaps(args.shape) || args.shape.filters % 2 != 0) return false;
  if (args.input.dtype == DType::kU8) return Forward<std::uint8_t>(stream, args);
  return Forward<BF16>(stream, args);
}

}  // namespace troop::cuda
