// Conversion of byte planes to channels last, with SSE2 for four planes.
#include "kernels/conv/nchw_to_nhwc.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace troop {
namespace {

// Four planes, the stack of Atari frames. Returns the number of pixels done, a multiple of 16.
std::int64_t InterleaveFour(const std::uint8_t* in, std::int64_t stride, std::int64_t n,
                            std::uint8_t* out) {
#ifdef __SSE2__
  const auto load = [](const std::uint8_t* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i a = load(in + i), b = load(in + stride + i);
    const __m128i c = load(in + 2 * stride + i), d = load(in + 3 * stride + i);
    // Unpacking bytes of pairs of planes, then 16-bit pairs, gives the four channels of each pixel.
    const __m128i ab0 = _mm_unpacklo_epi8(a, b), ab1 = _mm_unpackhi_epi8(a, b);
    const __m128i cd0 = _mm_unpacklo_epi8(c, d), cd1 = _mm_unpackhi_epi8(c, d);
    auto* const to = reinterpret_cast<__m128i*>(out + 4 * i);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(ab0, cd0));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab0, cd0));
    _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab1, cd1));
    _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab1, cd1));
  }
  return i;
#else
  (void)in, (void)stride, (void)n, (void)out;
  return 0;
#endif
}

}  // namespace

void NchwToNhwcBytes(const std::uint8_t* in, std::int64_t stride, std::int64_t planes,
                     std::int64_t n, std::uint8_t* out) {
  // The rest, and other numbers of planes, one byte at a time.
  const std::int64_t done = planes == 4 ? InterleaveFour(in, stride, n, out) : 0;
  for (std::int64_t k = 0; k < planes; ++k) {
    for (std::int64_t i = done; i < n; ++i) out[i * planes + k] = in[k * stride + i];
  }
}

}  // namespace troop
