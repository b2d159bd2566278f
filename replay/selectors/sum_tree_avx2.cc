// AVX2 kernels of SumTree. No inline functions of the standard library here: the linker might use
// this file's copies everywhere.

#include <immintrin.h>

#include "replay/selectors/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 64;  // descents in flight: enough to cover a memory access
constexpr double kMassMax = double(__FLT_MAX__);  // below the +inf border of an empty child

// The 16 values of one node.
struct Sixteen {
  __m256 low, high;
};

Sixteen LoadNode(const float* node) { return {_mm256_load_ps(node), _mm256_load_ps(node + 8)}; }

// Shifts `v` up by 1, 2 or 4 lanes. `below`: the vector before it, whose top lanes move in.
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

// Same additions in the same order as PrefixSums in sum_tree_plain.cc.
Sixteen PrefixSums(Sixteen x) {
  x = AddShifted<1>(x);
  x = AddShifted<2>(x);
  x = AddShifted<4>(x);
  return {x.low, _mm256_add_ps(x.high, x.low)};
}

__m256 InfWhereZero(__m256 border, __m256 value) {
  const __m256 positive = _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_GT_OQ);
  return _mm256_blendv_ps(_mm256_set1_ps(__builtin_inff()), border, positive);
}

// Borders: the sum of the children before each child, or +inf for children of value 0.
Sixteen Borders(const Sixteen& values, const Sixteen& prefix) {
  return {InfWhereZero(Shifted<1>(prefix.low, _mm256_setzero_ps()), values.low),
          InfWhereZero(Shifted<1>(prefix.high, prefix.low), values.high)};
}

// The last child whose border is not above the mass.
std::uint32_t Choose(const Sixteen& border, float mass) {
  const __m256 masses = _mm256_set1_ps(mass);
  const auto bits = [masses](__m256 v) {
    return std::uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(v, masses, _CMP_LE_OQ)));
  };
  return 31u - std::uint32_t(__builtin_clz(bits(border.low) | bits(border.high) << 8));
}

// State of kGroup descents.
struct Group {
  alignas(32) double rest[kGroup];    // mass minus the borders passed
  alignas(32) float rounded[kGroup];  // rest rounded to f32, for comparison with borders
  alignas(32) float border[kGroup];   // border of the chosen child
  alignas(32) std::uint32_t node[kGroup];
};

// rest = max(rest - border, 0), where NaN becomes 0.
void Subtract(Group* group, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 4) {
    const __m256d border = _mm256_cvtps_pd(_mm_load_ps(group->border + i));
    const __m256d rest =
        _mm256_max_pd(_mm256_sub_pd(_mm256_load_pd(group->rest + i), border), _mm256_setzero_pd());
    _mm256_store_pd(group->rest + i, rest);
    _mm_store_ps(group->rounded + i, _mm256_cvtpd_ps(rest));
  }
}

// Descends one level by stored borders. `below`: the level to read next, for prefetching.
void DescendByBorder(const float* level, const float* below, std::size_t count, Group* group) {
  for (std::size_t i = 0; i < count; ++i) {
    const float* const border = level + std::size_t(group->node[i]) * 16;
    const std::uint32_t child = Choose(LoadNode(border), group->rounded[i]);
    const std::uint32_t node = group->node[i] * 16 + child;
    __builtin_prefetch(below + std::size_t(node) * 16);
    group->node[i] = node;
    group->border[i] = border[child];
  }
}

// Descends one level by values, whose borders are computed.
void DescendByValue(const float* level, const float* below, std::size_t count, Group* group) {
  for (std::size_t i = 0; i < count; ++i) {
    const Sixteen values = LoadNode(level + std::size_t(group->node[i]) * 16);
    const Sixteen border = Borders(values, PrefixSums(values));
    const std::uint32_t child = Choose(border, group->rounded[i]);
    alignas(32) float lanes[16];
    _mm256_store_ps(lanes, border.low);
    _mm256_store_ps(lanes + 8, border.high);
    group->border[i] = lanes[child];
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
      const Sixteen values = LoadNode(leaf);
      const std::uint32_t child = Choose(Borders(values, PrefixSums(values)), group.rounded[i]);
      slot[first + i] = group.node[i] * 16 + child;
      value[first + i] = leaf[child];
    }
  }
}

bool Valid(const std::uint32_t* slot, const float* priority, std::size_t n, std::uint32_t slots,
           float priority_max) {
  bool good = true;
  for (std::size_t i = 0; i < n; ++i) {
    good &= (slot[i] < slots) & (priority[i] >= 0) & (priority[i] <= priority_max);
  }
  return good;
}

// Stores the borders and returns the sum: the last prefix sum, which adds pairwise as PairSum
// does.
float WriteBorders(const Sixteen& values, float* border) {
  const Sixteen prefix = PrefixSums(values);
  const Sixteen borders = Borders(values, prefix);
  _mm256_store_ps(border, borders.low);
  _mm256_store_ps(border + 8, borders.high);
  return _mm_cvtss_f32(_mm_permute_ps(_mm256_extractf128_ps(prefix.high, 1), 0xFF));
}

// Pairwise sum of 16 values, in the order of the prefix sums.
float PairSum(const Sixteen& x) {
  __m256 sum = _mm256_hadd_ps(x.low, x.high);  // pairs, in the order low, high of each half
  sum = _mm256_hadd_ps(sum, sum);              // fours: [l0 h0 l0 h0 | l1 h1 l1 h1]
  const __m128 eights = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
  return _mm_cvtss_f32(_mm_add_ss(eights, _mm_movehdup_ps(eights)));
}

void Sum(const float* value, float* border, const std::uint32_t* node, std::size_t n,
         float* parent) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = std::size_t(node[i]) * 16;
    const Sixteen values = LoadNode(value + at);
    parent[node[i]] = border == nullptr ? PairSum(values) : WriteBorders(values, border + at);
  }
}

}  // namespace

const SumTreeKernels kSumTreeAvx2{"avx2", Find, Valid, Sum};

}  // namespace troop
