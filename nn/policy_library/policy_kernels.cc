// Implements the matrix product for three instruction sets from one template.
#include "nn/policy_library/policy_kernels.h"

#include <algorithm>
#include <cstring>

namespace troop {
namespace {

using Vector4 = float __attribute__((vector_size(16)));
using Vector8 = float __attribute__((vector_size(32)));
using Vector16 = float __attribute__((vector_size(64)));
constexpr std::int64_t kPanel = PackedWeights::kPanel;

// Inlined into functions of each instruction set, which must not share code.
#define TROOP_POLICY_INLINE inline __attribute__((always_inline))

// Coefficients of the rational approximation of tanh on [-7.9, 7.9] by Eigen (MPL 2.0) and others:
// odd polynomial of degree 13 over even polynomial of degree 6.
TROOP_POLICY_INLINE float Tanh(float x) {
  const float clipped = std::clamp(x, -7.90531110763549805f, 7.90531110763549805f);
  const float s = clipped * clipped;
  float p = -2.76076847742355e-16f;
  for (const float c : {2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                        1.48572235717979e-05f, 6.37261928875436e-04f, 4.89352455891786e-03f}) {
    p = p * s + c;
  }
  float q = 1.19825839466702e-06f;
  for (const float c : {1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f}) {
    q = q * s + c;
  }
  // Tiny arguments are their own tanh; NaN passes.
  return std::abs(x) < 4e-4f ? x : x != x ? x : clipped * p / q;
}

// NaN passes through relu: it must reach the final check.
TROOP_POLICY_INLINE void Activate(PolicyActivation activation, float* x, std::int64_t n) {
  if (activation == PolicyActivation::kRelu) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
  } else if (activation == PolicyActivation::kTanh) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = Tanh(x[i]);
  }
}

// kRows rows times kPanels panels, beginning at `row` and `panel`. The sums stay in registers.
template <class V, int kRows, int kPanels>
TROOP_POLICY_INLINE void Tile(const PolicyProduct& p, std::int64_t row, std::int64_t panel) {
  constexpr int kLanes = sizeof(V) / sizeof(float), kEach = int(kPanel) / kLanes;
  constexpr int kVectors = kPanels * kEach;
  const PackedWeights& w = *p.weights;
  V sum[kRows][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    V bias;
    std::memcpy(&bias, w.bias.data() + panel * kPanel + v * kLanes, sizeof bias);
    for (int r = 0; r < kRows; ++r) sum[r][v] = bias;
  }
  // 1. All products of a row with the panels, segment by segment.
  const float* weight = w.panels.data() + panel * w.depth * kPanel;
  const std::int64_t apart = w.depth * kPanel;  // between panels
  for (std::int64_t s = 0; s < p.segments; ++s) {
    const float* in = p.in + row * p.row_step + s * p.segment_step;
    for (std::int64_t l = 0; l < p.length; ++l, weight += kPanel) {
      for (int v = 0; v < kVectors; ++v) {
        V column;
        std::memcpy(&column, weight + v / kEach * apart + v % kEach * kLanes, sizeof column);
        for (int r = 0; r < kRows; ++r) sum[r][v] += in[r * p.row_step + l] * column;
      }
    }
  }
  // 2. Activation, and the columns that exist.
  const std::int64_t first = panel * kPanel;
  const std::int64_t count = std::min<std::int64_t>(kPanels * kPanel, w.columns - first);
  for (int r = 0; r < kRows; ++r) {
    float values[kPanels * kPanel];
    std::memcpy(values, sum[r], sizeof values);
    Activate(p.activation, values, kPanels * kPanel);
    std::memcpy(p.out + (row + r) * w.columns + first, values, std::size_t(count) * sizeof(float));
  }
}

// All panels of kRows rows, kPanels at a time.
template <class V, int kRows, int kPanels>
TROOP_POLICY_INLINE void Strip(const PolicyProduct& p, std::int64_t row) {
  const std::int64_t panels = (p.weights->columns + kPanel - 1) / kPanel;
  std::int64_t panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) Tile<V, kRows, kPanels>(p, row, panel);
  if constexpr (kPanels > 1) {
    for (; panel < panels; ++panel) Tile<V, kRows, 1>(p, row, panel);
  }
}

// Six or three rows at a time, then single rows, whose sums need more panels to hide latency.
template <class V, int kRows, int kPanels, int kSinglePanels>
TROOP_POLICY_INLINE void Strips(const PolicyProduct& p) {
  std::int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) Strip<V, kRows, kPanels>(p, row);
  if constexpr (kRows > 3) {
    for (; row + 3 <= p.rows; row += 3) Strip<V, 3, kPanels>(p, row);
  }
  for (; row < p.rows; ++row) Strip<V, 1, kSinglePanels>(p, row);
}

void MultiplyPlain(const PolicyProduct& p) { Strips<Vector4, 3, 1, 2>(p); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const PolicyProduct& p) {
  Strips<Vector8, 6, 1, 2>(p);
}
__attribute__((target("avx512f,avx2,fma"))) void MultiplyAvx512(const PolicyProduct& p) {
  Strips<Vector16, 6, 2, 4>(p);
}
#endif

}  // namespace

PackedWeights::PackedWeights(const float* weight, const float* b, std::int64_t columns,
                             std::int64_t depth)
    : columns(columns), depth(depth) {
  const std::int64_t count = (columns + kPanel - 1) / kPanel;
  panels.assign(std::size_t(count * depth * kPanel), 0.0f);
  bias.assign(std::size_t(count * kPanel), 0.0f);
  std::copy_n(b, columns, bias.begin());
  for (std::int64_t c = 0; c < columns; ++c) {
    float* const panel = panels.data() + c / kPanel * depth * kPanel + c % kPanel;
    for (std::int64_t k = 0; k < depth; ++k) panel[k * kPanel] = weight[c * depth + k];
  }
}

PolicyIsa BestPolicyIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return __builtin_cpu_supports("avx512f") ? PolicyIsa::kAvx512 : PolicyIsa::kAvx2;
#endif
  return PolicyIsa::kPlain;
}

void Multiply(PolicyIsa isa, const PolicyProduct& product) {
#if defined(__x86_64__)
  if (isa == PolicyIsa::kAvx512) return MultiplyAvx512(product);
  if (isa == PolicyIsa::kAvx2) return MultiplyAvx2(product);
#endif
  (void)isa;
  MultiplyPlain(product);
}

float PolicyTanh(float x) { return Tanh(x); }

}  // namespace troop
