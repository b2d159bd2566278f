// AVX-512 kernel of MinMaxTree. No inline functions of the standard library here: the linker
// might use this file's copies everywhere.

// GCC 12 warns about intentionally undefined registers in the header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "replay/selectors/minmax_tree_kernels.h"

namespace troop {
namespace {

void Greatest(const std::uint32_t* key, const std::uint32_t* node, std::size_t n,
              std::uint32_t* parent) {
  for (std::size_t i = 0; i < n; ++i) {
    const __m512i x = _mm512_load_si512(key + std::size_t(node[i]) * 16);
    const __m256i eights =
        _mm256_max_epu32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i best =
        _mm_max_epu32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0x4E));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0xB1));
    parent[node[i]] = std::uint32_t(_mm_cvtsi128_si32(best));
  }
}

}  // namespace

const MinMaxTreeKernels kMinMaxTreeAvx512{"avx512", Greatest};

}  // namespace troop
