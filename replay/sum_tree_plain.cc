#include <algorithm>
#include <bit>

#include "replay/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 32;  // descents in flight: enough to cover a memory access

// Inclusive prefix sums of 16 values (Hillis & Steele 1986): sums of pairs, of fours, of eights, so
// that the last one equals the pairwise sum that is the parent's value, and so that vector paths
// can do the same additions.
void PrefixSums(const float* node, float* prefix) {
  float a[16], b[16];
  a[0] = node[0];
  for (int i = 1; i < 16; ++i) a[i] = node[i] + node[i - 1];
  for (int i = 0; i < 2; ++i) b[i] = a[i];
  for (int i = 2; i < 16; ++i) b[i] = a[i] + a[i - 2];
  for (int i = 0; i < 4; ++i) a[i] = b[i];
  for (int i = 4; i < 16; ++i) a[i] = b[i] + b[i - 4];
  for (int i = 0; i < 8; ++i) prefix[i] = a[i];
  for (int i = 8; i < 16; ++i) prefix[i] = a[i] + a[i - 8];
}

// The first positive child whose prefix sum is above the mass, else the last positive one; takes
// the prefix before it off the mass. Rounding may make prefix sums shrink, so a child of value 0 is
// excluded by name.
std::uint32_t Choose(const float* node, double* mass) {
  float prefix[16];
  PrefixSums(node, prefix);
  const float m = float(*mass);
  std::uint32_t above = 0, positive = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    positive |= std::uint32_t(node[i] > 0) << i;
    above |= std::uint32_t(prefix[i] > m) << i;
  }
  above &= positive;
  const std::uint32_t child =
      above != 0 ? std::uint32_t(std::countr_zero(above)) : std::uint32_t(std::bit_width(positive)) - 1;
  if (child > 0) *mass -= prefix[child - 1];
  return child;
}

void Find(const float* const* level, int levels, const double* mass, std::size_t n,
          std::uint32_t* slot, float* value) {
  for (std::size_t first = 0; first < n; first += kGroup) {
    const std::size_t count = std::min(kGroup, n - first);
    double rest[kGroup];
    std::uint32_t node[kGroup] = {};
    std::copy_n(mass + first, count, rest);
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
    const float* x = values + std::size_t(node[i]) * 16;
    float pair[8], four[4];
    for (int j = 0; j < 8; ++j) pair[j] = x[2 * j] + x[2 * j + 1];
    for (int j = 0; j < 4; ++j) four[j] = pair[2 * j] + pair[2 * j + 1];
    parents[node[i]] = (four[0] + four[1]) + (four[2] + four[3]);
  }
}

}  // namespace

const SumTreeKernels kSumTreePlain{"plain", Find, Sum};

const SumTreeKernels& SumTreeKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kSumTreeAvx512;
  if (level >= CpuLevel::kAvx2) return kSumTreeAvx2;
  return kSumTreePlain;
}

}  // namespace troop
