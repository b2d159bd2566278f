// No inline functions of the standard library here: the linker may keep this file's copy for all.

// GCC 12 takes the header's own "undefined" registers for a mistake of ours (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "replay/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 64;  // descents in flight: enough to cover a memory access

// The additions of PrefixSums in sum_tree_plain.cc: shift by 1, 2, 4, 8 lanes and add.
template <int kLanes>
__m512 AddShifted(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  return _mm512_add_ps(
      x, _mm512_castsi512_ps(_mm512_alignr_epi32(bits, _mm512_setzero_si512(), 16 - kLanes)));
}

__m512 PrefixSums(__m512 x) {
  return AddShifted<8>(AddShifted<4>(AddShifted<2>(AddShifted<1>(x))));
}

std::uint32_t Choose(const float* node, double* mass) {
  const __m512 values = _mm512_load_ps(node);
  const __m512 prefix = PrefixSums(values);
  const __mmask16 positive = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_GT_OQ);
  const __mmask16 above =
      _mm512_mask_cmp_ps_mask(positive, prefix, _mm512_set1_ps(float(*mass)), _CMP_GT_OQ);
  const std::uint32_t child = above != 0 ? std::uint32_t(__builtin_ctz(above))
                                         : 31u - std::uint32_t(__builtin_clz(positive));
  // Lane child - 1 of the prefix sums; 0 for the first child.
  const __m512 before =
      _mm512_maskz_permutexvar_ps(__mmask16(child > 0), _mm512_set1_epi32(int(child) - 1), prefix);
  *mass -= double(_mm512_cvtss_f32(before));
  return child;
}

void Find(const float* const* level, int levels, const double* mass, std::size_t n,
          std::uint32_t* slot, float* value) {
  for (std::size_t first = 0; first < n; first += kGroup) {
    const std::size_t count = n - first < kGroup ? n - first : kGroup;
    double rest[kGroup];
    std::uint32_t node[kGroup] = {};
    for (std::size_t i = 0; i < count; ++i) rest[i] = mass[first + i];
    for (int l = levels - 1; l >= 0; --l) {
      const float* const values = level[l];
      const float* const below = level[l > 0 ? l - 1 : 0];
      for (std::size_t i = 0; i < count; ++i) {
        node[i] = node[i] * 16 + Choose(values + std::size_t(node[i]) * 16, &rest[i]);
        if (l > 0) __builtin_prefetch(below + std::size_t(node[i]) * 16);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      slot[first + i] = node[i];
      value[first + i] = level[0][node[i]];
    }
  }
}

void Sum(const float* values, const std::uint32_t* node, std::size_t n, float* parents) {
  for (std::size_t i = 0; i < n; ++i) {
    __m512 x = _mm512_load_ps(values + std::size_t(node[i]) * 16);
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xB1));        // neighbours
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4E));        // pairs
    x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xB1));  // fours
    x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0x4E));  // eights
    parents[node[i]] = _mm512_cvtss_f32(x);
  }
}

}  // namespace

const SumTreeKernels kSumTreeAvx512{"avx512", Find, Sum};

}  // namespace troop
