// Kernels of SumTree without instruction-set extensions, and the choice of kernels.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>

#include "replay/selectors/sum_tree_kernels.h"

namespace troop {
namespace {

constexpr std::size_t kGroup = 64;  // descents in flight: enough to cover a memory access

// Four lanes on every machine: one SSE register on x86-64, whatever the compiler's default is.
typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t QuadBits __attribute__((vector_size(16)));

Quad LoadQuad(const float* from) {
  Quad quad;
  __builtin_memcpy(&quad, from, sizeof quad);
  return quad;
}

// Inclusive prefix sums of 16 values (Hillis & Steele 1986): sums of pairs, of fours, of eights.
// The last one equals the pairwise sum that is the parent's value, and wider vectors can do the
// same additions.
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

// Borders: the sum of the children before each child, or +inf for children of value 0. Rounding
// may make prefix sums decrease, so empty children are excluded explicitly. Returns the sum of
// all.
float Borders(const float* values, Quad* border) {
  const float inf = std::numeric_limits<float>::infinity();
  const Quad zero = {}, none = {inf, inf, inf, inf};
  Quad value[4], prefix[4], below = {};
  for (int i = 0; i < 4; ++i) value[i] = LoadQuad(values + 4 * i);
  PrefixSums(value, prefix);
  for (int i = 0; i < 4; ++i) {
    border[i] = value[i] > zero ? __builtin_shufflevector(below, prefix[i], 3, 4, 5, 6) : none;
    below = prefix[i];
  }
  return prefix[3][3];
}

// The last child whose border is not above the mass.
std::uint32_t Choose(const Quad* border, float mass) {
  const Quad masses = {mass, mass, mass, mass};
  QuadBits bits = {}, lane = {1, 2, 4, 8};
  for (int i = 0; i < 4; ++i, lane <<= 4) bits |= (border[i] <= masses) & lane;
  const auto found = std::uint32_t(bits[0] | bits[1] | bits[2] | bits[3]);
  return std::uint32_t(std::bit_width(found)) - 1;
}

// Loads the 16 stored borders of a node.
void LoadNode(const float* from, Quad* node) {
  for (int i = 0; i < 4; ++i) node[i] = LoadQuad(from + 4 * i);
}

// Descends to the nodes of the leaves for `count` masses. `rest` becomes the mass left in the
// node.
void Descend(const SumTreeLevels& levels, std::size_t count, double* rest, std::uint32_t* node) {
  for (int l = levels.count - 1; l > 0; --l) {
    const bool stored = l >= kSumTreeBorderLevel;
    const float* const level = stored ? levels.border[l] : levels.value[l];
    const float* const below = l > kSumTreeBorderLevel ? levels.border[l - 1] : levels.value[l - 1];
    for (std::size_t i = 0; i < count; ++i) {
      Quad border[4];
      const float* const at = level + std::size_t(node[i]) * 16;
      stored ? LoadNode(at, border) : void(Borders(at, border));
      const std::uint32_t child = Choose(border, float(rest[i]));
      node[i] = node[i] * 16 + child;
      __builtin_prefetch(below + std::size_t(node[i]) * 16);
      // Rounding the mass to f32 may cross a border above it.
      rest[i] = std::max(rest[i] - double(border[child / 4][child % 4]), 0.0);
    }
  }
}

// In groups of kGroup descents, whose cache misses overlap; the leaves' nodes come last.
void Find(const SumTreeLevels& levels, const double* mass, std::size_t n, std::uint32_t* slot,
          float* value) {
  for (std::size_t first = 0; first < n; first += kGroup) {
    const std::size_t count = std::min(kGroup, n - first);
    double rest[kGroup];
    std::uint32_t node[kGroup] = {};
    for (std::size_t i = 0; i < count; ++i) {
      const double m = mass[first + i];
      rest[i] = m > 0 ? std::min(m, double(FLT_MAX)) : 0.0;  // NaN becomes 0 too
    }
    Descend(levels, count, rest, node);
    for (std::size_t i = 0; i < count; ++i) {
      const float* const leaf = levels.value[0] + std::size_t(node[i]) * 16;
      Quad border[4];
      Borders(leaf, border);
      const std::uint32_t child = Choose(border, float(rest[i]));
      slot[first + i] = node[i] * 16 + child;
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

void Sum(const float* value, float* border, const std::uint32_t* node, std::size_t n,
         float* parent) {
  for (std::size_t i = 0; i < n; ++i) {
    const float* const x = value + std::size_t(node[i]) * 16;
    Quad borders[4];
    parent[node[i]] = Borders(x, borders);
    if (border != nullptr) {
      __builtin_memcpy(border + std::size_t(node[i]) * 16, borders, sizeof borders);
    }
  }
}

}  // namespace

const SumTreeKernels kSumTreePlain{"plain", Find, Valid, Sum};

const SumTreeKernels& SumTreeKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kSumTreeAvx512;
  if (level >= CpuLevel::kAvx2) return kSumTreeAvx2;
  return kSumTreePlain;
}

}  // namespace troop
