#pragma once

#include "kernels/fused_mlp/gemm_impl.h"

// Convolution of a small network: its 16 or 32 filters are register lanes, inputs are broadcast.
// Compiled once per instruction set; see kernels/simd/vec.h.
namespace troop {
namespace {

// Register tiling for kFilters filters.
//   kVecs: registers that hold the filters;
//   kPositions: output positions of a row that forward computes at once;
//   kTaps: weights whose gradient backward accumulates at once.
template <int kFilters>
struct ConvTiling {
  static constexpr int kVecs = kFilters / Vec::kLanes;
  static constexpr int kPositions = Vec::kLanes == 16 ? 8 : 8 / kVecs;
  static constexpr int kTaps = Vec::kLanes == 16 ? (kVecs == 1 ? 16 : 12) : 8 / kVecs;
};

// Computes kCount neighboring positions of one output row. x: the top left input of the first one.
// wt: the transposed weights [taps, kFilters].
template <int kFilters, int kCount>
inline void ConvTile(const FusedConv& c, const float* x, const float* wt, const float* bias,
                     float* y) {
  constexpr int kVecs = ConvTiling<kFilters>::kVecs;
  // step: floats between positions; span: floats of a kernel row.
  const std::int64_t step = c.stride * c.channels, span = c.kernel * c.channels;
  Vec sum[kCount][kVecs];
#pragma GCC unroll 8
  for (int p = 0; p < kCount; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[p][v] = Load(bias + v * Vec::kLanes);
  }
  // The taps of one kernel row are contiguous in x.
  for (std::int64_t ky = 0; ky < c.kernel; ++ky, x += c.width * c.channels) {
    for (std::int64_t j = 0; j < span; ++j, wt += kFilters) {
      Vec w[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) w[v] = Load(wt + v * Vec::kLanes);
#pragma GCC unroll 8
      for (int p = 0; p < kCount; ++p) {
        // One broadcast input times a register of filters.
        const Vec xp = Set(x[p * step + j]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sum[p][v] = MulAdd(xp, w[v], sum[p][v]);
      }
    }
  }
  // Fused ReLU, then the store.
  const bool relu = c.activation == Activation::kRelu;
#pragma GCC unroll 8
  for (int p = 0; p < kCount; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec s = relu ? Max(Set(0), sum[p][v]) : sum[p][v];
      Store(y + p * kFilters + v * Vec::kLanes, s);
    }
  }
}

// A row of outputs: tiles of kCount positions, then recursively of half as many.
template <int kFilters, int kCount = ConvTiling<kFilters>::kPositions>
inline void ConvRow(const FusedConv& c, const float* x, const float* wt, const float* bias,
                    float* y, std::int64_t positions) {
  const std::int64_t step = c.stride * c.channels;
  for (; positions >= kCount; positions -= kCount, x += kCount * step, y += kCount * kFilters) {
    ConvTile<kFilters, kCount>(c, x, wt, bias, y);
  }
  // The rest: tiles of half the size.
  if constexpr (kCount > 1) ConvRow<kFilters, kCount / 2>(c, x, wt, bias, y, positions);
}

// y [batch, out_height, out_width, filters] from x [batch, height, width, channels]. wt: room for
// the transposed weights.
inline void ConvForward(const FusedConv& c, std::int64_t batch, const float* x, const float* value,
                        float* wt, float* y) {
  const std::int64_t height = c.out_height(), width = c.out_width();
  Transpose(c.filters, c.kernel * c.kernel * c.channels, value + c.weight, wt);
  for (std::int64_t row = 0; row < batch * height; ++row) {
    // A row of outputs of one item.
    const std::int64_t item = row / height, oy = row % height;
    const float* corner = x + (item * c.height + oy * c.stride) * c.width * c.channels;
    float* out = y + row * width * c.filters;
    if (c.filters == 16) ConvRow<16>(c, corner, wt, value + c.bias, out, width);
    if (c.filters == 32) ConvRow<32>(c, corner, wt, value + c.bias, out, width);
  }
  // ReLU is applied in the tiles.
  if (c.activation == Activation::kTanh) TanhInPlace(batch * height * width * c.filters, y);
}

// Gradient of kTaps neighboring weights of one kernel row: dwt[tap, filters]. x: the batch, offset
// by the first tap. The sums stay in registers over the whole batch.
template <int kFilters, int kTaps>
inline void ConvTapsGradient(const FusedConv& c, std::int64_t batch, const float* x,
                             const float* dy, float* dwt) {
  constexpr int kVecs = ConvTiling<kFilters>::kVecs;
  const std::int64_t height = c.out_height(), width = c.out_width();
  const std::int64_t step = c.stride * c.channels;
  Vec sum[kTaps][kVecs];
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[t][v] = Set(0);
  }
  for (std::int64_t row = 0; row < batch * height; ++row) {
    const std::int64_t item = row / height, oy = row % height;
    const float* xp = x + (item * c.height + oy * c.stride) * c.width * c.channels;
    for (std::int64_t ox = 0; ox < width; ++ox, xp += step, dy += kFilters) {
      Vec d[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) d[v] = Load(dy + v * Vec::kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) {
        // One broadcast input times a register of dy.
        const Vec xt = Set(xp[t]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sum[t][v] = MulAdd(xt, d[v], sum[t][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) Store(dwt + t * kFilters + v * Vec::kLanes, sum[t][v]);
  }
}

// ConvTapsGradient for a number of taps that is known only at run time.
template <int kFilters, int kTaps = ConvTiling<kFilters>::kTaps>
inline void ConvSomeTapsGradient(const FusedConv& c, std::int64_t taps, std::int64_t batch,
                                 const float* x, const float* dy, float* dwt) {
  if (taps == kTaps) return ConvTapsGradient<kFilters, kTaps>(c, batch, x, dy, dwt);
  if constexpr (kTaps > 1) {
    ConvSomeTapsGradient<kFilters, kTaps - 1>(c, taps, batch, x, dy, dwt);
  }
}

// The whole gradient, dwt [taps, kFilters]. Each kernel row is divided evenly into tiles of at most
// kTaps taps.
template <int kFilters>
inline void ConvAllTapsGradient(const FusedConv& c, std::int64_t batch, const float* x,
                                const float* dy, float* dwt) {
  constexpr std::int64_t kTaps = ConvTiling<kFilters>::kTaps;
  const std::int64_t span = c.kernel * c.channels, tiles = (span + kTaps - 1) / kTaps;
  for (std::int64_t ky = 0; ky < c.kernel; ++ky) {
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles differ by at most one tap.
      const std::int64_t first = span * tile / tiles, count = span * (tile + 1) / tiles - first;
      ConvSomeTapsGradient<kFilters>(c, count, batch, x + ky * c.width * c.channels + first, dy,
                                     dwt + (ky * span + first) * kFilters);
    }
  }
}

// Weight and bias gradients. dwt: room for the transposed weights. add: adds to the gradient,
// otherwise overwrites it.
inline void ConvBackwardWeight(const FusedConv& c, std::int64_t batch, const float* x,
                               const float* dy, float* dwt, bool add, float* gradient) {
  const std::int64_t taps = c.kernel * c.kernel * c.channels;
  if (c.filters == 16) ConvAllTapsGradient<16>(c, batch, x, dy, dwt);
  if (c.filters == 32) ConvAllTapsGradient<32>(c, batch, x, dy, dwt);
  // Transposes the gradient back to [filters, taps].
  float* dw = gradient + c.weight;
  for (std::int64_t f = 0; f < c.filters; ++f) {
    for (std::int64_t t = 0; t < taps; ++t) {
      const float g = dwt[t * c.filters + f];
      dw[f * taps + t] = add ? dw[f * taps + t] + g : g;
    }
  }
  ColumnSums(batch * c.out_height() * c.out_width(), c.filters, dy, add, gradient + c.bias);
}

}  // namespace
}  // namespace troop
