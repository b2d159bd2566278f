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
template <class V>
TROOP_POLICY_INLINE void Activate(PolicyActivation activation, V& x) {
  if (activation == PolicyActivation::kRelu) {
    x = x < 0 ? V{} : x;
  } else if (activation == PolicyActivation::kTanh) {
    for (std::size_t i = 0; i < sizeof(V) / sizeof(float); ++i) x[i] = Tanh(x[i]);
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
  const float* in[kRows];
  for (int r = 0; r < kRows; ++r) {
    in[r] = p.in + (p.row_offsets == nullptr ? (row + r) * p.row_step : p.row_offsets[row + r]);
  }
  const float* weight = w.panels.data() + panel * w.depth * kPanel;
  const std::int64_t apart = w.depth * kPanel;  // between panels
  for (std::int64_t s = 0; s < p.segments; ++s) {
    for (std::int64_t l = 0; l < p.length; ++l, weight += kPanel) {
      for (int v = 0; v < kVectors; ++v) {
        V column;
        std::memcpy(&column, weight + v / kEach * apart + v % kEach * kLanes, sizeof column);
        for (int r = 0; r < kRows; ++r) sum[r][v] += in[r][l] * column;
      }
    }
    for (int r = 0; r < kRows; ++r) in[r] += p.segment_step;
  }
  // 2. Activation, and the columns that exist.
  const std::int64_t first = panel * kPanel;
  const std::int64_t count = std::min<std::int64_t>(kPanels * kPanel, w.columns - first);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Activate(p.activation, sum[r][v]);
    float* const out = p.out + (row + r) * w.columns + first;
    if (count == kPanels * kPanel) {
      std::memcpy(out, sum[r], sizeof sum[r]);
    } else {
      std::memcpy(out, sum[r], std::size_t(count) * sizeof(float));
    }
  }
}

// Sizes of tiles. Each has enough independent sums to hide the latency of an addition: 12 of
// AVX-512, or of AVX2.
struct TileSizes {
  int rows, panels;   // the usual tile
  int narrow_rows;    // of one panel
  int single_panels;  // of one row
};

// Rows from `row` on, kRows at a time, then fewer; the panels of a tile are read from the cache
// after the first of them.
template <class V, int kRows, int kPanels>
TROOP_POLICY_INLINE void Column(const PolicyProduct& p, std::int64_t row, std::int64_t panel) {
  for (; row + kRows <= p.rows; row += kRows) Tile<V, kRows, kPanels>(p, row, panel);
  if constexpr (kRows > 1) {
    if (row < p.rows) Column<V, kRows / 2, kPanels>(p, row, panel);
  }
}

template <class V, TileSizes kSizes>
TROOP_POLICY_INLINE void Columns(const PolicyProduct& p) {
  const std::int64_t panels = (p.weights->columns + kPanel - 1) / kPanel;
  std::int64_t panel = 0;
  if (p.rows == 1) {
    constexpr int kSingle = kSizes.single_panels;
    for (; panel + kSingle <= panels; panel += kSingle) Tile<V, 1, kSingle>(p, 0, panel);
    for (; panel < panels; ++panel) Tile<V, 1, 1>(p, 0, panel);
    return;
  }
  for (; panel + kSizes.panels <= panels; panel += kSizes.panels)
    Column<V, kSizes.rows, kSizes.panels>(p, 0, panel);
  if constexpr (kSizes.panels > 1) {
    for (; panel < panels; ++panel) Column<V, kSizes.narrow_rows, 1>(p, 0, panel);
  }
}

// The compiler vectorizes this loop for each instruction set.
template <class T>
TROOP_POLICY_INLINE void ScaleEach(const T* in, std::int64_t n, float factor, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = factor * float(in[i]);
}

void ScalePlain(const float* in, std::int64_t n, float factor, float* out) {
  ScaleEach(in, n, factor, out);
}
void ScalePlain(const std::uint8_t* in, std::int64_t n, float factor, float* out) {
  ScaleEach(in, n, factor, out);
}
void MultiplyPlain(const PolicyProduct& p) { Columns<Vector4, TileSizes{3, 1, 3, 2}>(p); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void ScaleAvx2(const float* in, std::int64_t n, float factor,
                                               float* out) {
  ScaleEach(in, n, factor, out);
}
__attribute__((target("avx2"))) void ScaleAvx2(const std::uint8_t* in, std::int64_t n, float factor,
                                               float* out) {
  ScaleEach(in, n, factor, out);
}
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const PolicyProduct& p) {
  Columns<Vector8, TileSizes{6, 1, 6, 4}>(p);
}
__attribute__((target("avx512f,avx2,fma"))) void MultiplyAvx512(const PolicyProduct& p) {
  Columns<Vector16, TileSizes{6, 2, 12, 4}>(p);
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

void ScaleToFloat(PolicyIsa isa, const float* in, std::int64_t n, float factor, float* out) {
#if defined(__x86_64__)
  if (isa != PolicyIsa::kPlain) return ScaleAvx2(in, n, factor, out);
#endif
  (void)isa;
  ScalePlain(in, n, factor, out);
}

void ScaleToFloat(PolicyIsa isa, const std::uint8_t* in, std::int64_t n, float factor, float* out) {
#if defined(__x86_64__)
  if (isa != PolicyIsa::kPlain) return ScaleAvx2(in, n, factor, out);
#endif
  (void)isa;
  ScalePlain(in, n, factor, out);
}

float PolicyTanh(float x) { return Tanh(x); }

// Comparisons with NaN are false, so it is returned.
float PolicyActivated(PolicyActivation activation, float x) {
  if (activation == PolicyActivation::kRelu) return x < 0 ? 0 : x;
  return activation == PolicyActivation::kTanh ? Tanh(x) : x;
}

}  // namespace troop
