// AVX-512 kernels of SumTree. No inline functions of the standard library here: the linker might
// use this file's copies everywhere.

// GCC 12 warns about intentionally undefined registers in the header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "replay/selectors/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 64;  // descents in flight: enough to cover a memory access
constexpr double kMassMax = double(__FLT_MAX__);  // below the +inf border of an empty child

// Shifts up by kLanes lanes. PrefixSums shifts by 1, 2, 4, 8 lanes and adds: the same additions in
// the same order as in sum_tree_plain.cc.
template <int kLanes>
__m512 Shifted(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(x), _mm512_setzero_si512(), 16 - kLanes));
}

template <int kLanes>
__m512 AddShifted(__m512 x) {
  return _mm512_add_ps(x, Shifted<kLanes>(x));
}

__m512 PrefixSums(__m512 x) {
  return AddShifted<8>(AddShifted<4>(AddShifted<2>(AddShifted<1>(x))));
}

// Borders: the sum of the children before each child, or +inf for children of value 0.
__m512 Borders(__m512 values, __m512 prefix) {
  const __mmask16 positive = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_GT_OQ);
  return _mm512_mask_blend_ps(positive, _mm512_set1_ps(__builtin_inff()), Shifted<1>(prefix));
}

// State of kGroup descents.
struct Group {
  alignas(64) double rest[kGroup];    // mass minus the borders passed
  alignas(64) float rounded[kGroup];  // rest rounded to f32, for comparison with borders
  alignas(64) float border[kGroup];   // border of the chosen child
  alignas(64) std::uint32_t node[kGroup];
};

// rest = max(rest - border, 0), where NaN becomes 0.
void Subtract(Group* group, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 8) {
    const __m512d border = _mm512_cvtps_pd(_mm256_load_ps(group->border + i));
    const __m512d rest =
        _mm512_max_pd(_mm512_sub_pd(_mm512_load_pd(group->rest + i), border), _mm512_setzero_pd());
    _mm512_store_pd(group->rest + i, rest);
    _mm256_store_ps(group->rounded + i, _mm512_cvtpd_ps(rest));
  }
}

// The last child whose border is not above the mass.
std::uint32_t Choose(__m512 border, float mass) {
  const __mmask16 below = _mm512_cmp_ps_mask(border, _mm512_set1_ps(mass), _CMP_LE_OQ);
  return 31u - std::uint32_t(__builtin_clz(below));
}

// Descends one level by stored borders. `below`: the level to read next, for prefetching.
void DescendByBorder(const float* level, const float* below, std::size_t count, Group* group) {
  for (std::size_t i = 0; i < count; ++i) {
    const float* const border = level + std::size_t(group->node[i]) * 16;
    const std::uint32_t child = Choose(_mm512_load_ps(border), group->rounded[i]);
    const std::uint32_t node = group->node[i] * 16 + child;
    __builtin_prefetch(below + std::size_t(node) * 16);
    group->node[i] = node;
    group->border[i] = border[child];
  }
}

// Descends one level by values, whose borders are computed.
void DescendByValue(const float* level, const float* below, std::size_t count, Group* group) {
  for (std::size_t i = 0; i < count; ++i) {
    const __m512 values = _mm512_load_ps(level + std::size_t(group->node[i]) * 16);
    const __m512 border = Borders(values, PrefixSums(values));
    const std::uint32_t child = Choose(border, group->rounded[i]);
    group->border[i] =
        _mm512_cvtss_f32(_mm512_permutexvar_ps(_mm512_set1_epi32(int(child)), border));
    const std::uint32_t node = group->node[i] * 16 + child;
    __builtin_prefetch(below + std::size_t(node) * 16);
    group->node[i] = node;
  }
}

// Descends to the nodes of the leaves. REQUIRES: masses in group->rest, in [0, kMassMax].
void Descend(const SumTreeLevels& levels, std::size_t count, Group* group) {
  for (std::size_t i = 0; i < count; ++i) group->node[i] = 0;
  for (std::size_t i = 0; i < count; ++i) group->border[i] = 0;
  Subtract(group, count);
  for (int l = levels.count - 1; l > 0; --l) {
    if (l >= kSumTreeBorderLevel) {
      const bool more = l > kSumTreeBorderLevel;
      DescendByBorder(levels.border[l], more ? levels.border[l - 1] : levels.value[l - 1], count,
                      group);
    } else {
      DescendByValue(levels.value[l], levels.value[l - 1], count, group);
    }
    Subtract(group, count);
  }
}

// In groups, as in sum_tree_plain.cc.
void Find(const SumTreeLevels& levels, const double* mass, std::size_t n, std::uint32_t* slot,
          float* value) {
  Group group{};
  for (std::size_t first = 0; first < n; first += kGroup) {
    const std::size_t count = n - first < kGroup ? n - first : kGroup;
    for (std::size_t i = 0; i < count; ++i) {
      const double m = mass[first + i];
      group.rest[i] = m > 0 ? (m < kMassMax ? m : kMassMax) : 0;
    }
    Descend(levels, count, &group);
    for (std::size_t i = 0; i < count; ++i) {
      const float* const leaf = levels.value[0] + std::size_t(group.node[i]) * 16;
      const __m512 values = _mm512_load_ps(leaf);
      const std::uint32_t child = Choose(Borders(values, PrefixSums(values)), group.rounded[i]);
      slot[first + i] = group.node[i] * 16 + child;
      value[first + i] = leaf[child];
    }
  }
}

// Masked loads give 0 past the end, which is valid; the tail's masks need no special case.
bool Valid(const std::uint32_t* slot, const float* priority, std::size_t n, std::uint32_t slots,
           float priority_max) {
  __mmask16 good = 0xFFFF;
  for (std::size_t i = 0; i < n; i += 16) {
    const __mmask16 tail = n - i < 16 ? __mmask16((1u << (n - i)) - 1) : __mmask16(0xFFFF);
    const __m512i s = _mm512_maskz_loadu_epi32(tail, slot + i);
    const __m512 p = _mm512_maskz_loadu_ps(tail, priority + i);
    good &= _mm512_cmplt_epu32_mask(s, _mm512_set1_epi32(int(slots))) &
            _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_GE_OQ) &
            _mm512_cmp_ps_mask(p, _mm512_set1_ps(priority_max), _CMP_LE_OQ);
  }
  return good == 0xFFFF;
}

void Sum(const float* value, float* border, const std::uint32_t* node, std::size_t n,
         float* parent) {
  if (border != nullptr) {
    for (std::size_t i = 0; i < n; ++i) {
      const __m512 x = _mm512_load_ps(value + std::size_t(node[i]) * 16);
      const __m512 prefix = PrefixSums(x);
      _mm512_store_ps(border + std::size_t(node[i]) * 16, Borders(x, prefix));
      parent[node[i]] = _mm_cvtss_f32(_mm_permute_ps(_mm512_extractf32x4_ps(prefix, 3), 0xFF));
    }
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    __m512 x = _mm512_load_ps(value + std::size_t(node[i]) * 16);
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xB1));        // adjacent lanes
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4E));        // pairs
    x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xB1));  // fours
    x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0x4E));  // eights
    parent[node[i]] = _mm512_cvtss_f32(x);
  }
}

}  // namespace

const SumTreeKernels kSumTreeAvx512{"avx512", Find, Valid, Sum};

}  // namespace troop
