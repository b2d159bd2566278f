// AVX2 path of AtariPreprocess: eight output pixels of a row at a time.

#include <immintrin.h>

#include <algorithm>

#include "envs/atari/preprocessing.h"
#include "envs/atari/preprocessing_kernels.h"

namespace troop {
namespace {

__m128i Load(const std::uint8_t* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// Computes eight output pixels: the weighted sum of rows.size() source rows of both frames,
// `stride` bytes apart.
template <int kTaps, class Group>
__m128i EightPixels(const Group& group, const std::uint8_t* a, const std::uint8_t* b, int stride,
                    std::span<const float> rows) {
  __m256 sum = _mm256_setzero_ps();
  for (const float row : rows) {
    const __m128i source = _mm_max_epu8(Load(a), Load(b));
    __m256 shrunk = _mm256_setzero_ps();
    for (int t = 0; t < kTaps; ++t) {
      const __m128i bytes = _mm_shuffle_epi8(source, Load(group.tap[t]));
      const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
      // Separate multiplication and addition, like the plain path: an FMA would round once.
      shrunk = _mm256_add_ps(shrunk, _mm256_mul_ps(value, _mm256_loadu_ps(group.weight[t])));
    }
    sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(row), shrunk));
    a += stride;
    b += stride;
  }
  const __m256i whole = _mm256_cvtps_epi32(sum);  // rounds halves to even
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packus_epi16(words, words);
}

}  // namespace

void AreaResizeAvx2(const AtariPreprocess& p, const std::uint8_t* a, const std::uint8_t* b,
                    std::uint8_t* out) {
  using Group = AtariPreprocess::Group;
  using Function = __m128i (*)(const Group&, const std::uint8_t*, const std::uint8_t*, int,
                               std::span<const float>);
  // The number of taps is a template argument, so that the inner loop is unrolled.
  constexpr Function kFunctions[] = {&EightPixels<1, Group>, &EightPixels<2, Group>,
                                     &EightPixels<3, Group>, &EightPixels<4, Group>};
  const Function eight = kFunctions[p.taps_ - 1];
  const int width = p.from_.width;
  const std::uint8_t* const end = out + p.to_.pixels();
  for (const AtariPreprocess::Cell& row : p.rows_) {
    for (const Group& group : p.groups_) {
      const int at = row.first * width + group.from;
      alignas(16) std::uint8_t pixels[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(pixels),
                      eight(group, a + at, b + at, width, row.weight));
      // The next group overwrites pixels beyond this group; those after the end are not written.
      std::uint8_t* const to = out + group.to;
      std::copy_n(pixels, std::min<std::ptrdiff_t>(8, end - to), to);
    }
    out += p.to_.width;
  }
}

}  // namespace troop
