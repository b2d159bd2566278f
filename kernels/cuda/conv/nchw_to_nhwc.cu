// Conversion of stacked images to channels last.
#include "kernels/cuda/conv/nchw_to_nhwc.h"

#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 256;

// One thread per element of `to`: neighbors write adjacent elements and read from `stack` streams,
// each contiguous.
template <class T>
TROOP_KERNEL void InterleaveKernel(std::int64_t n, std::int64_t stack, std::int64_t pixels,
                                   std::int64_t channels, const T* from, T* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t channel = i % channels, picture = i / channels % stack,
                     pixel = i / (channels * stack) % pixels, row = i / (channels * stack * pixels);
  to[i] = from[((row * stack + picture) * pixels + pixel) * channels + channel];
}

// Four one-channel images of bytes (the Atari stack): a thread handles four pixels of each, with
// 32-bit reads and one 16-byte write.
TROOP_KERNEL void InterleaveFourKernel(std::int64_t n, std::int64_t pixels,
                                       const std::uint8_t* from, std::uint8_t* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t words = pixels / 4, row = i / words, word = i % words;
  unsigned in[4], out[4] = {};
  for (int k = 0; k < 4; ++k)
    in[k] = *reinterpret_cast<const unsigned*>(from + (row * 4 + k) * pixels + word * 4);
  // A 4 x 4 transposition of bytes.
  for (int p = 0; p < 4; ++p)
    for (int k = 0; k < 4; ++k) out[p] |= (in[k] >> (8 * p) & 0xff) << (8 * k);
  *reinterpret_cast<uint4*>(to + i * 16) = make_uint4(out[0], out[1], out[2], out[3]);
}

LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads))), dim3(kThreads)};
}

}  // namespace

void FrameStackToNhwc(Stream& stream, const FrameStackToNhwcArgs& args) {
  const std::int64_t stack = args.stack, pixels = args.pixels, channels = args.channels;
  const std::int64_t n = args.rows * stack * pixels * channels;
  if (args.dtype == DType::kU8 && stack == 4 && channels == 1 && pixels % 4 == 0) {
    Launch(stream, "InterleaveFour", Over(n / 16), InterleaveFourKernel, n / 16, pixels,
           static_cast<const std::uint8_t*>(args.from), static_cast<std::uint8_t*>(args.to));
  } else if (args.dtype == DType::kU8) {
    Launch(stream, "Interleave", Over(n), InterleaveKernel<std::uint8_t>, n, stack, pixels,
           channels, static_cast<const std::uint8_t*>(args.from),
           static_cast<std::uint8_t*>(args.to));
  } else {
    Launch(stream, "Interleave", Over(n), InterleaveKernel<float>, n, stack, pixels, channels,
           static_cast<const float*>(args.from), static_cast<float*>(args.to));
  }
}

}  // namespace troop::cuda
