// AVX2 kernel of MinMaxTree. No inline functions of the standard library here: the linker might
// use this file's copies everywhere.

#include <immintrin.h>

#include "replay/selectors/minmax_tree_kernels.h"

namespace troop {
namespace {

void Greatest(const std::uint32_t* key, const std::uint32_t* node, std::size_t n,
              std::uint32_t* parent) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto* const x = reinterpret_cast<const __m256i*>(key + std::size_t(node[i]) * 16);
    const __m256i eights = _mm256_max_epu32(_mm256_load_si256(x), _mm256_load_si256(x + 1));
    __m128i best =
        _mm_max_epu32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0x4E));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0xB1));
    parent[node[i]] = std::uint32_t(_mm_cvtsi128_si32(best));
  }
}

}  // namespace

const MinMaxTreeKernels kMinMaxTreeAvx2{"avx2", Greatest};

}  // namespace troop
