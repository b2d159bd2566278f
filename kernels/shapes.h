#pragma once

#include <cstdint>

namespace troop {

// Fully connected layer: y[b, o] = activation(Σ_i w[o, i] x[b, i] + bias[o]).
// x: [batch, in]; w: [out, in]; y: [batch, out].
struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// 2D convolution with a square kernel and no padding, channels last:
//   y[b, p, q, o] = activation(Σ_{r,s,c} w[o, r, s, c] x[b, p·stride + r, q·stride + s, c] +
//   bias[o])
// x: [batch, height, width, channels]; w: [filters, kernel, kernel, channels];
// y: [batch, out_height, out_width, filters].
struct ConvShape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t filters = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t out_height() const { return (height - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width - kernel) / stride + 1; }
};

}  // namespace troop
