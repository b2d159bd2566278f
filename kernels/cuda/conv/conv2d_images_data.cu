// Gradient of the input for conv2d_images.h: a block keeps the zero-padded output gradients of some
// images and all weights in shared memory. Phases as in conv2d_operands.h.
#include "kernels/cuda/conv/conv2d_images.h"
#include "kernels/cuda/conv/conv2d_images_device.h"

namespace troop::cuda {
namespace {

// Arguments of the kernel.
struct DataOfImages {
  ConvSizes s;
  int batch, images;
  int lead;                // rows and columns of zeros before the gradients of an image
  int padded_h, padded_w;  // size of the gradients of an image with their padding
  int groups, tiles;       // warp tiles along the channels, and along the positions of a phase
  int pitch, images_at;    // as in ForwardOfImages
  Divisor by_runs, by_padded_w, by_padded_h;
  Divisor by_rows[2], by_columns[2];  // positions per phase: [0] later phases, [1] earlier
  const BF16* weight;
  const BF16* dz;
  const BF16* relu_of;
  BF16* dx;
};

template <bool kWide>
TROOP_KERNEL void __launch_bounds__(kProductThreads, 1) DataKernel(DataOfImages op) {
  using Tile = WarpTile<kWide ? 2 : 4, kWide ? 8 : 4>;
  std::byte* const shared = DynamicShared();
  std::byte* const gradients = shared + op.images_at;
  const ConvSizes& s = op.s;
  const int first = int(blockIdx.x) * op.images;
  const int count = op.batch - first < op.images ? op.batch - first : op.images;
  const int pixel_runs = s.filters / kRun;

  const int row_runs = s.taps() / kRun;
  // Load weights, and gradients with zeros around them.
  CopyFilters<kProductThreads>(shared, op.pitch, op.weight, s.filters, row_runs, s.filters,
                               row_runs);
  const int all = count * op.padded_h * op.padded_w * pixel_runs;
  for (int i = int(threadIdx.x); i < all; i += kProductThreads) {
    const int pixel = op.by_runs.Quotient(i), run = i - pixel * pixel_runs;
    const int row = op.by_padded_w.Quotient(pixel), q = pixel - row * op.padded_w - op.lead;
    const int image = op.by_padded_h.Quotient(row), p = row - image * op.padded_h - op.lead;
    // Padding: CopyAsync16 writes zeros.
    const bool valid = p >= 0 && q >= 0 && p < s.out_height && q < s.out_width;
    const std::int64_t at = (std::int64_t(first + image) * s.out_height + p) * s.out_width + q;
    CopyAsync16(gradients + Swizzled(kRunBytes * i),
                op.dz + (valid ? at * s.filters + kRun * run : 0), valid);
  }
  CopyCommit();
  CopyWait<0>();
  __syncthreads();

  // A unit of work is a warp tile of one phase: unit = (phase, tile, group).
  const LanePlace place;
  const int units = s.stride * s.stride * op.tiles * op.groups;
  for (int unit = int(threadIdx.x) / kWarp; unit < units; unit += kProductThreads / kWarp) {
    const int before = unit / op.groups, group = unit - before * op.groups;
    const int phase = before / op.tiles, tile = before - phase * op.tiles;
    const int phase_h = phase / s.stride, phase_w = phase - phase_h * s.stride;
    if (phase_h >= s.height || phase_w >= s.width) continue;
    const Divisor rows = op.by_rows[phase_h < s.height % s.stride],
                  columns = op.by_columns[phase_w < s.width % s.stride];
    // Taps of the phase along one axis.
    const auto taps = [&](int begin) {
      return s.kernel > begin ? (s.kernel - begin + s.stride - 1) / s.stride : 0;
    };
    const int taps_h = taps(phase_h), taps_w = taps(phase_w);
    const int positions = count * rows.divisor() * columns.divisor();
    if (Tile::kRows * tile >= positions) continue;
    // Splits a position of the phase into image, row and column.
    const auto split = [&](int m, int* image, int* h, int* w) {
      const int rest = columns.Quotient(m);
      *w = m - rest * columns.divisor();
      *image = rows.Quotient(rest);
      *h = rest - *image * rows.divisor();
    };
    // Byte offsets of the rows whose addresses this lane passes to LoadMatrix4.
    int pixel[Tile::kRows / 16];
    TROOP_UNROLL
    for (int i = 0; i < Tile::kRows / 16; ++i) {
      const int m = Tile::kRows * tile + 16 * i + place.matrix % 2 * 8 + place.line;
      int image, h, w;
      split(m < positions ? m : 0, &image, &h, &w);
      const int where = (image * op.padded_h + h + op.lead) * op.padded_w + w + op.lead;
      pixel[i] = where * s.filters * int(sizeof(BF16)) + place.matrix / 2 * kRunBytes;
    }
    const std::byte* const channels =
        shared + (place.matrix % 2 * 8 + place.line) * op.pitch +
        (Tile::kColumns * group + place.matrix / 2 * 8) * int(sizeof(BF16));
    // Offset in dx of a position, or -1 after the last one.
    const auto there = [&](int m) -> std::int64_t {
      m += Tile::kRows * tile;
      if (m >= positions) return -1;
      int image, h, w;
      split(m, &image, &h, &w);
      return ((std::int64_t(first + image) * s.height + h * s.stride + phase_h) * s.width +
              w * s.stride + phase_w) *
             s.channels;
    };
    // Bit mask of the elements that the preceding ReLU passed, two bits per pair. All are read
    // before the products, so that the loads overlap.
    static_assert(Tile::kPairs <= 32);
    std::uint64_t above = ~std::uint64_t{0};
    if (op.relu_of != nullptr) {
      std::uint32_t below[Tile::kPairs] = {};
      Tile::ForPlaces(there, [&](std::int64_t at, int column, int which) {
        column += Tile::kColumns * group;
        if (column < s.channels)
          below[which] = *reinterpret_cast<const std::uint32_t*>(op.relu_of + at + column);
      });
      above = 0;
      TROOP_UNROLL
      for (int which = 0; which < Tile::kPairs; ++which) {
        const bool low = ToFloat(BF16{std::uint16_t(below[which])}) > 0,
                   high = ToFloat(BF16{std::uint16_t(below[which] >> 16)}) > 0;
        above |= std::uint64_t((low ? 1 : 0) + (high ? 2 : 0)) << (2 * which);
      }
    }
    // The steps iterate over the taps of the phase, and over the filters of each tap.
    const auto tap_weights = [&](int r, int c) {
      const int tap = (r * s.stride + phase_h) * s.kernel + c * s.stride + phase_w;
      return channels + tap * s.channels * int(sizeof(BF16));
    };
    int tap_r = 0, tap_c = 0, filter = 0, at = 0;
    const std::byte* weights = tap_weights(0, 0);
    Tile product;
    product.MultiplySteps(
        taps_h * taps_w * (s.filters / 16), [&](typename Tile::Operands& operands) {
          operands.template Load<true>([&](int i) { return gradients + Swizzled(pixel[i] + at); },
                                       [&](int j) { return weights + 2 * kRunBytes * j; });
          at += 2 * kRunBytes, weights += 16 * op.pitch, filter += 16;
          if (filter < s.filters) return;
          filter = 0;
          if (++tap_c == taps_w) tap_c = 0, ++tap_r;
          // The next tap reads the gradients of the outputs before: above, or to the left.
          at = -(tap_r * op.padded_w + tap_c) * s.filters * int(sizeof(BF16));
          weights = tap_weights(tap_r, tap_c);
        });
    product.ForPairs(there, [&](std::int64_t at, int column, int which, float a, float b) {
      column += Tile::kColumns * group;
      if (column >= s.channels) return;
      // Gradients of elements that the ReLU did not pass are 0.
      const auto both = unsigned(above >> (2 * which)) & 3;
      *reinterpret_cast<std::uint32_t*>(op.dx + at + column) =
          ToBF16x2((both & 1) != 0 ? a : 0, (both & 2) != 0 ? b : 0);
    });
  }
}

}  // namespace

bool BackwardDataByImages(Stream& stream, const ConvBackwardDataArgs& args) {
  const ConvShape& shape = args.shape;
  const std::int64_t batch = args.batch;
  if (batch == 0 || shape.filters % 16 != 0 || shape.channels % kRun != 0) return false;
  if (!WeightsFit(shape.filters, shape)) return false;
  const auto behind = [&](std::int64_t size) { return CeilDivide(size, shape.stride); };
  // Zeros around the gradients replace bounds checks for taps.
  const std::int64_t lead = behind(shape.kernel) - 1;
  const std::int64_t padded_h = lead + std::max(shape.out_height(), behind(shape.height));
  const std::int64_t padded_w = lead + std::max(shape.out_width(), behind(shape.width));
  const std::int64_t taps = shape.kernel * shape.kernel * shape.channels, bf16 = sizeof(BF16);
  // Positions of the phases that have one less, and of the others.
  const auto less = [&](std::int64_t size) {
    return Divisor(int(std::max<std::int64_t>(1, size / shape.stride)));
  };
  const auto more = [&](std::int64_t size) { return Divisor(int(size / shape.stride + 1)); };
  // Wide tiles are 32 positions x 64 channels, others 64 x 32.
  const bool wide = shape.channels > 32;
  const int columns = wide ? 64 : 32, rows = wide ? 32 : 64;
  DataOfImages op{.s = ConvSizes(shape),
                  .batch = int(batch),
                  .lead = int(lead),
                  .padded_h = int(padded_h),
                  .padded_w = int(padded_w),
                  .groups = int(CeilDivide(shape.channels, columns)),
                  .pitch = int((taps / kRun | 1) * kRunBytes),
                  .by_runs = Divisor(int(shape.filters / kRun)),
                  .by_padded_w = Divisor(int(padded_w)),
                  .by_padded_h = Divisor(int(padded_h)),
                  .by_rows = {less(shape.height), more(shape.height)},
                  .by_columns = {less(shape.width), more(shape.width)},
                  .weight = static_cast<const BF16*>(args.weight),
                  .dz = static_cast<const BF16*>(args.dz),
                  .relu_of = static_cast<const BF16*>(args.relu_of),
                  .dx = static_cast<BF16*>(args.dx)};
  // Columns beyond the channels in the last group are read and not stored.
  op.images_at = int(RoundUp(shape.filters * op.pitch + columns * bf16, kLine));
  const std::int64_t each = padded_h * padded_w * shape.filters * bf16;
  const std::int64_t images =
      ImagesOfBlock(batch, op.images_at + kLine, each, SharedOf(stream), kMultiprocessors);
  if (images == 0) return false;
  op.images = int(images);
  op.tiles = int(CeilDivide(images * behind(shape.height) * behind(shape.width), rows));
  Launch(stream, "ConvBackwardData of images",
         {dim3(unsigned(CeilDivide(batch, images))), dim3(kProductThreads),
          std::size_t(op.images_at + RoundUp(images * each, kLine))},
         wide ? DataKernel<true> : DataKernel<false>, op);
  return true;
}

}  // namespace troop::cuda
