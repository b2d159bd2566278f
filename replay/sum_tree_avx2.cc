// No inline functions of the standard library here: the linker may keep this file's copy for all.

#include <immintrin.h>

#include "replay/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 64;  // descents in flight: enough to cover a memory access

struct Sixteen {
  __m256 low, high;
};

// `v` moved up by 1, 2 or 4 lanes, zeros coming in: per 128-bit half, with the bytes of the half
// below.
template <int kLanes>
__m256 Shifted(__m256 v, __m256 below) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i carry = _mm256_castps_si256(below);
  const __m256i halves = _mm256_permute2x128_si256(carry, bits, 0x21);  // [below.high, v.low]
  return _mm256_castsi256_ps(_mm256_alignr_epi8(bits, halves, 16 - 4 * kLanes));
}

template <int kLanes>
Sixteen AddShifted(const Sixteen& x) {
  return {_mm256_add_ps(x.low, Shifted<kLanes>(x.low, _mm256_setzero_ps())),
          _mm256_add_ps(x.high, Shifted<kLanes>(x.high, x.low))};
}

// The additions of PrefixSums in sum_tree_plain.cc.
Sixteen PrefixSums(Sixteen x) {
  x = AddShifted<1>(x);
  x = AddShifted<2>(x);
  x = AddShifted<4>(x);
  return {x.low, _mm256_add_ps(x.high, x.low)};
}

std::uint32_t Bits(const Sixteen& x, __m256 above) {
  const auto bits = [above](__m256 v) {
    return std::uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(v, above, _CMP_GT_OQ)));
  };
  return bits(x.low) | bits(x.high) << 8;
}

std::uint32_t Choose(const float* node, double* mass) {
  const Sixteen values{_mm256_load_ps(node), _mm256_load_ps(node + 8)};
  const Sixteen prefix = PrefixSums(values);
  const std::uint32_t positive = Bits(values, _mm256_setzero_ps());
  const std::uint32_t above = positive & Bits(prefix, _mm256_set1_ps(float(*mass)));
  const std::uint32_t child = above != 0 ? std::uint32_t(__builtin_ctz(above))
                                         : 31u - std::uint32_t(__builtin_clz(positive));
  alignas(32) float before[17];
  before[0] = 0;
  _mm256_storeu_ps(before + 1, prefix.low);
  _mm256_storeu_ps(before + 9, prefix.high);
  *mass -= double(before[child]);
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
      for (std::size_t i = 0; i < count; ++i) {
        node[i] = node[i] * 16 + Choose(level[l] + std::size_t(node[i]) * 16, &rest[i]);
        if (l > 0) __builtin_prefetch(level[l - 1] + std::size_t(node[i]) * 16);
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
    const float* const x = values + std::size_t(node[i]) * 16;
    const __m256 low = _mm256_load_ps(x), high = _mm256_load_ps(x + 8);
    __m256 sum = _mm256_hadd_ps(low, high);  // pairs, in the order low, high of each half
    sum = _mm256_hadd_ps(sum, sum);          // fours: [l0 h0 l0 h0 | l1 h1 l1 h1]
    const __m128 eights = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    parents[node[i]] = _mm_cvtss_f32(_mm_add_ss(eights, _mm_movehdup_ps(eights)));
  }
}

}  // namespace

const SumTreeKernels kSumTreeAvx2{"avx2", Find, Sum};

}  // namespace troop
