#include <algorithm>
#include <bit>

#include "replay/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 32;  // descents in flight: enough to cover a memory access

// Four lanes on every machine: one SSE register on x86-64, whatever the compiler has elsewhere.
typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t QuadBits __attribute__((vector_size(16)));

Quad LoadQuad(const float* from) {
  Quad quad;
  __builtin_memcpy(&quad, from, sizeof quad);
  return quad;
}

// Inclusive prefix sums of 16 values (Hillis & Steele 1986): sums of pairs, of fours, of eights, so
// that the last one equals the pairwise sum that is the parent's value, and so that wider vectors
// can do the same additions.
void PrefixSums(const Quad* node, Quad* prefix) {
  Quad pair[4], four[4], eight[4];
  Quad below = {};
  for (int i = 0; i < 4; ++i) {
    pair[i] = node[i] + __builtin_shufflevector(below, node[i], 3, 4, 5, 6);
    below = node[i];
  }
  below = Quad{};
  for (int i = 0; i < 4; ++i) {
    four[i] = pair[i] + __builtin_shufflevector(below, pair[i], 2, 3, 4, 5);
    below = pair[i];
  }
  eight[0] = four[0];
  for (int i = 1; i < 4; ++i) eight[i] = four[i] + four[i - 1];
  prefix[0] = eight[0];
  prefix[1] = eight[1];
  prefix[2] = eight[2] + eight[0];
  prefix[3] = eight[3] + eight[1];
}

std::uint32_t Bits(QuadBits lanes) {
  return std::uint32_t(lanes[0] | lanes[1] | lanes[2] | lanes[3]);
}

// The first positive child whose prefix sum is above the mass, else the last positive one; takes
// the prefix before it off the mass. Rounding may make prefix sums shrink, so a child of value 0 is
// excluded by name.
std::uint32_t Choose(const float* node, double* mass) {
  Quad value[4];
  alignas(16) float before[20];  // 4 zeros, 16 prefix sums
  for (int i = 0; i < 4; ++i) value[i] = LoadQuad(node + 4 * i);
  Quad prefix[4];
  PrefixSums(value, prefix);
  const float m = float(*mass);
  const Quad zero = {}, masses = {m, m, m, m};
  QuadBits positive_bits = {}, above_bits = {}, lane = {1, 2, 4, 8};
  __builtin_memcpy(before, &zero, sizeof zero);
  __builtin_memcpy(before + 4, prefix, sizeof prefix);
  for (int i = 0; i < 4; ++i, lane <<= 4) {
    const QuadBits positive = (value[i] > zero) & lane;
    positive_bits |= positive;
    above_bits |= (prefix[i] > masses) & positive;
  }
  const std::uint32_t above = Bits(above_bits);
  const int child =
      above != 0 ? std::countr_zero(above) : int(std::bit_width(Bits(positive_bits))) - 1;
  *mass -= double(before[child + 3]);
  return std::uint32_t(child);
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
