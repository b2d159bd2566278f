// Convolutions as tiled products (conv2d_mma.h); sizes that suit conv2d_images.h go there.
#include "kernels/cuda/conv/conv2d.h"

#include <algorithm>

#include "kernels/cuda/conv/conv2d_images.h"
#include "kernels/cuda/conv/conv2d_mma.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// Implementation of a product: CUDA cores, TF32 tensor cores, or bf16 tensor cores with tiles that
// are 64 or 32 wide.
enum class Way { kPlain, kTF32, kWide, kNarrow };

// blockIdx.z is the part along k, of k_each elements.
template <class Op, Way kWay>
TROOP_KERNEL void __launch_bounds__(kTileThreads, 2) ConvKernel(Op op, int k_each) {
  const int first = int(blockIdx.z) * k_each;
  const int end = op.k_size - first < k_each ? op.k_size : first + k_each;
  // Only WeightOp splits k among blocks.
  if constexpr (requires { op.part; }) op.part = int(blockIdx.z);
  if constexpr (kWay == Way::kPlain) {
    PlainTile(op, first, end);
  } else if constexpr (kWay == Way::kTF32) {
    TF32Tile(op, first, end);
  } else {
    MatrixTile<Op, kWay == Way::kWide ? 64 : 32>(op, first, end);
  }
}

// Parts along k of a product: their number, and the elements of each.
struct Parts {
  int count, each;
};

// Launches a product. Only implementations that suit the element type are compiled.
template <class Op>
void Start(Stream& stream, const char* name, Way way, const Op& op, const Parts& parts) {
  const int m = way == Way::kPlain ? kPlainTile : way == Way::kTF32 ? kTF32M : kMatrixM;
  const int n = way == Way::kNarrow ? 32 : 64;
  const LaunchShape shape{dim3(unsigned(CeilDivide(op.m_size, m)),
                               unsigned(CeilDivide(op.n_size, n)), unsigned(parts.count)),
                          dim3(kTileThreads)};
  if (way == Way::kPlain)
    return Launch(stream, name, shape, ConvKernel<Op, Way::kPlain>, op, parts.each);
  if constexpr (!Op::kMatrix) {
    if (way == Way::kTF32)
      return Launch(stream, name, shape, ConvKernel<Op, Way::kTF32>, op, parts.each);
  }
  if constexpr (Op::kMatrix) {
    if (way == Way::kWide)
      return Launch(stream, name, shape, ConvKernel<Op, Way::kWide>, op, parts.each);
    Launch(stream, name, shape, ConvKernel<Op, Way::kNarrow>, op, parts.each);
  }
}

// True if runs of eight elements of a row of taps are contiguous and aligned.
bool RunsOfEight(const ConvShape& s) {
  return s.width * s.channels % 8 == 0 && s.stride * s.channels % 8 == 0 &&
         s.kernel * s.channels % 8 == 0;
}

// f32 and TF32 support all sizes. bf16 without runs of eight uses CUDA cores.
Way WayOf(Precision precision, bool runs, std::int64_t n) {
  if (precision == Precision::kTF32) return Way::kTF32;
  if (precision != Precision::kBF16 || !runs) return Way::kPlain;
  return n > 32 ? Way::kWide : Way::kNarrow;
}

// Kernels index positions and taps with 32 bits.
bool Fits(Stream& stream, const ConvShape& s, std::int64_t batch) {
  const std::int64_t most = std::int64_t(1) << 30;
  if (batch * s.height * s.width < most && s.height * s.width * s.channels < most &&
      s.kernel * s.kernel * s.channels * s.filters < most) {
    return true;
  }
  stream.device().Fail("a convolution over " + std::to_string(batch) + " images of " +
                       std::to_string(s.height) + " x " + std::to_string(s.width) +
                       " has more than 2^30 positions; make the batch smaller");
  return false;
}

// --- Forward

template <class X, class Element>
void Forward(Stream& stream, const ConvForwardArgs& args) {
  const ConvShape& shape = args.shape;
  const ConvSizes s(shape);
  const ForwardOp<X, Element> op{s,
                                 int(args.batch * s.out_height * s.out_width),
                                 s.filters,
                                 s.taps(),
                                 static_cast<const X*>(args.input.x),
                                 static_cast<const Element*>(args.weight),
                                 args.bias,
                                 static_cast<Element*>(args.y),
                                 args.input.dtype == DType::kU8 ? args.input.scale : 1.0f,
                                 args.activation};
  Start(stream, "ConvForward", WayOf(args.precision, RunsOfEight(shape), shape.filters), op,
        {.count = 1, .each = op.k_size});
}

// --- Gradient of the input: one product per phase (conv2d_operands.h).

template <class Element>
void BackwardData(Stream& stream, const ConvBackwardDataArgs& args) {
  const ConvShape& shape = args.shape;
  const ConvSizes s(shape);
  const Way way =
      WayOf(args.precision, shape.filters % 8 == 0 && shape.channels % 8 == 0, shape.channels);
  // Each element of dx belongs to one phase and is written once.
  for (int phase = 0; phase < s.stride * s.stride; ++phase) {
    const int h = phase / s.stride, w = phase % s.stride;
    // Number of indices in [at, size) that are `stride` apart.
    const auto behind = [&](int size, int at) {
      return std::max(0, (size - at + s.stride - 1) / s.stride);
    };
    const int taps_h = behind(s.kernel, h), taps_w = behind(s.kernel, w);
    const int rows = behind(s.height, h), columns = behind(s.width, w);
    const DataOp<Element> op{s,
                             int(args.batch) * rows * columns,
                             s.channels,
                             taps_h * taps_w * s.filters,  // 0: no tap reaches the phase, dx = 0
                             h,
                             w,
                             Divisor(std::max(1, rows)),
                             Divisor(std::max(1, columns)),
                             Divisor(std::max(1, taps_w)),
                             static_cast<const Element*>(args.weight),
                             static_cast<const Element*>(args.dz),
                             static_cast<const Element*>(args.relu_of),
                             static_cast<Element*>(args.dx)};
    Start(stream, "ConvBackwardData", way, op, {.count = 1, .each = op.k_size});
  }
}

// --- Gradient of the weights: partial sums per part of the positions, then their sum.

// Parts along k: enough blocks for twice 132 multiprocessors with two blocks each, but at least 256
// positions per part, so that a block does enough work for storing its sums.
Parts PartsOf(const ConvShape& s, std::int64_t batch) {
  const std::int64_t positions = batch * s.out_height() * s.out_width();
  const std::int64_t tiles = CeilDivide(s.kernel * s.kernel * s.channels, kMatrixM) *
                             CeilDivide(s.filters, std::int64_t(64));
  const std::int64_t wanted = std::max<std::int64_t>(1, 528 / tiles);
  const std::int64_t each =
      CeilDivide(std::max<std::int64_t>(256, CeilDivide(positions, wanted)), kMatrixDepth) *
      kMatrixDepth;
  return {int(CeilDivide(positions, each)), int(each)};
}

// partial [parts, filters]: sums of dz over the positions of a part.
template <class Element>
TROOP_KERNEL void BiasPartsKernel(int filters, int positions, int each, const Element* dz,
                                  float* partial) {
  TROOP_SHARED(float, sums, 8 * 33);
  // A block handles 32 filters; eight warps handle every eighth position each.
  const int lane = int(threadIdx.x % 32), part = int(threadIdx.x / 32);
  const int filter = int(blockIdx.x) * 32 + lane;
  const int first = int(blockIdx.y) * each;
  const int end = positions - first < each ? positions : first + each;
  float sum = 0;
  if (filter < filters) {
    for (int i = first + part; i < end; i += 8)
      sum += OneOf(dz + std::int64_t(i) * filters + filter);
  }
  sums[part * 33 + lane] = sum;
  __syncthreads();
  if (part != 0 || filter >= filters) return;
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sums[i * 33 + lane];
  partial[std::int64_t(blockIdx.y) * filters + filter] = all;
}

// Arguments of SumParts.
struct SumPartsArgs {
  int n = 0, parts = 0;
  float scale = 1;
  const float* partial = nullptr;  // [parts, n]
  float* to = nullptr;             // [n], overwritten
};
// to = scale · Σ over the parts, in their order.
TROOP_KERNEL void SumPartsKernel(int n, int parts, float scale, const float* partial, float* to) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  float sum = 0;
  for (int p = 0; p < parts; ++p) sum += partial[std::int64_t(p) * n + i];
  to[i] = scale * sum;
}

void SumParts(Stream& stream, const SumPartsArgs& args) {
  Launch(stream, "ConvSumParts", {dim3(unsigned(CeilDivide(args.n, 256))), dim3(256)},
         SumPartsKernel, args.n, args.parts, args.scale, args.partial, args.to);
}

template <class X, class Element>
void BackwardWeight(Stream& stream, const ConvBackwardWeightArgs& args) {
  const ConvShape& shape = args.shape;
  const Element* const dz = static_cast<const Element*>(args.dz);
  float* const scratch = static_cast<float*>(args.scratch);
  const ConvSizes s(shape);
  const Parts parts = PartsOf(shape, args.batch);
  const int positions = int(args.batch * s.out_height * s.out_width),
            weights = s.taps() * s.filters;
  const WeightOp<X, Element> op{
      s, s.taps(), s.filters, positions, static_cast<const X*>(args.input.x), dz, scratch, 0};
  // Runs of eight along the filters too.
  const bool runs = RunsOfEight(shape) && shape.filters % 8 == 0;
  Start(stream, "ConvBackwardWeight", WayOf(args.precision, runs, shape.filters), op, parts);
  const float scale = args.input.dtype == DType::kU8 ? args.input.scale : 1.0f;
  SumParts(
      stream,
      {.n = weights, .parts = parts.count, .scale = scale, .partial = scratch, .to = args.dweight});
  // scratch: partial weight gradients, then partial bias gradients.
  float* const bias_parts = scratch + std::int64_t(parts.count) * weights;
  Launch(stream, "ConvBiasParts",
         {dim3(unsigned(CeilDivide(s.filters, 32)), unsigned(parts.count)), dim3(256)},
         BiasPartsKernel<Element>, s.filters, positions, parts.each, dz, bias_parts);
  SumParts(stream, {.n = s.filters, .parts = parts.count, .partial = bias_parts, .to = args.dbias});
}

// Calls start(type of the input, type of the elements).
template <class Start>
void WithTypes(Precision precision, const ConvInput& input, const Start& start) {
  const bool bf16 = precision == Precision::kBF16, bytes = input.dtype == DType::kU8;
  if (bf16 && bytes) return start(std::uint8_t(), BF16());
  if (bf16) return start(BF16(), BF16());
  if (bytes) return start(std::uint8_t(), float());
  start(float(), float());
}

}  // namespace

void ConvForward(Stream& stream, const ConvForwardArgs& args) {
  if (!Fits(stream, args.shape, args.batch)) return;
  if (args.precision == Precision::kBF16 && ForwardByImages(stream, args)) return;
  WithTypes(args.precision, args.input,
            [&]<class X, class Element>(X, Element) { Forward<X, Element>(stream, args); });
}

void ConvBackwardData(Stream& stream, const ConvBackwardDataArgs& args) {
  if (!Fits(stream, args.shape, args.batch)) return;
  if (args.precision == Precision::kBF16) {
    if (BackwardDataByImages(stream, args)) return;
    BackwardData<BF16>(stream, args);
  } else {
    BackwardData<float>(stream, args);
  }
}

std::int64_t ConvBackwardWeightScratch(const ConvShape& shape, std::int64_t batch) {
  const std::int64_t weights = shape.kernel * shape.kernel * shape.channels * shape.filters;
  const std::int64_t tiles =
      PartsOf(shape, batch).count * (weights + shape.filters) * std::int64_t(sizeof(float));
  return std::max(tiles, BackwardWeightByImagesScratch(shape, batch));
}

void ConvBackwardWeight(Stream& stream, const ConvBackwardWeightArgs& args) {
  if (!Fits(stream, args.shape, args.batch)) return;
  if (args.precision == Precision::kBF16 && BackwardWeightByImages(stream, args)) return;
  WithTypes(args.precision, args.input,
            [&]<class X, class Element>(X, Element) { BackwardWeight<X, Element>(stream, args); });
}

}  // namespace troop::cuda
