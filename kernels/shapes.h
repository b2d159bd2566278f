#pragma once

#include <cstdint>

namespace troop {

// Fully connected layer: y[b, o] = activation(Σ_i w[o, i] x[b, i] + bias[o]).
// x: [batch, in]; w: [out, in]; y: [batch, out].
struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// 2D convolution with a square kernel, channels last:
//   y[b, p, q, o] = activation(Σ_{r,s,c} w[o, r, s, c] x[b, p·stride + r - padding, q·stride + s -
//   padding, g·channels/groups + c] + bias[o])
// where x is 0 outside the image, c < channels / groups, and g = o / (filters / groups) is the
// group of filter o. x: [batch, height, width, channels]; w: [filters, kernel, kernel, channels /
// groups]; y: [batch, out_height, out_width, filters].
struct ConvShape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t filters = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on each side; CPU only
  std::int64_t groups = 1;   // divides channels and filters; CPU only
  std::int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  std::int64_t fan_in() const { return kernel * kernel * (channels / groups); }
  // True for a convolution of all channels without padding, as all paths but oneDNN's take.
  bool plain() const { return padding == 0 && groups == 1; }
};

}  // namespace troop
