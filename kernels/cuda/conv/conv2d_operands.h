#pragma once

#include <type_traits>

#include "kernels/cuda/conv/conv2d.h"
#include "kernels/cuda/runtime/device_code.h"
#include "kernels/cuda/runtime/fast_divide.h"

// The three products of a convolution, as operations of a tiled product c [M, N] = Σ_k a(m, k) b(k,
// n). An operation defines where elements lie and where a sum goes. Device code for conv*.cu.
//   forward: m is a position (image, p, q), k a tap and channel (r, s, c), n a filter.
//   data: a product for each phase (h mod stride, w mod stride); m is a position (image, h', w') of
//   the phase, k a tap that reaches it and a filter (r', s', filter), n a channel.
//   weight: m is a tap and channel (r, s, c), k a position, n a filter. k is split among blocks,
//   whose partial sums are added afterwards.
namespace troop::cuda {

// Sizes in 32 bits. The host has checked that the positions of a batch and the elements of an image
// fit.
struct ConvSizes {
  // On the host.
  explicit ConvSizes(const ConvShape& s)
      : height(int(s.height)),
        width(int(s.width)),
        channels(int(s.channels)),
        filters(int(s.filters)),
        kernel(int(s.kernel)),
        stride(int(s.stride)),
        out_height(int(s.out_height())),
        out_width(int(s.out_width())),
        by_filters(filters),
        by_tap_row(kernel * channels),
        by_out_height(out_height),
        by_out_width(out_width) {}
  int height, width, channels, filters, kernel, stride, out_height, out_width;
  Divisor by_filters, by_tap_row, by_out_height, by_out_width;  // for the innermost loops
  TROOP_HOST_DEVICE int taps() const { return kernel * kernel * channels; }
};

// One element as float, or eight contiguous ones as bf16 (16 bytes).
TROOP_DEVICE float OneOf(const float* x) { return *x; }
TROOP_DEVICE float OneOf(const BF16* x) { return ToFloat(*x); }
TROOP_DEVICE float OneOf(const std::uint8_t* x) { return float(*x); }
TROOP_DEVICE uint4 EightOf(const BF16* x) { return *reinterpret_cast<const uint4*>(x); }
// Four bytes as bf16; exact, since a byte has eight bits. The byte becomes the lowest bits of 2^23
// as f32, and subtracting 2^23 gives its value. Integer conversion instructions have an eighth of
// the throughput of additions.
TROOP_DEVICE uint2 FourAsBF16(unsigned bytes) {
  const auto one = [&](int at) {
    return __uint_as_float(0x4b000000u | (bytes >> at & 0xffu)) - 8388608.0f;
  };
  return make_uint2(ToBF16x2(one(0), one(8)), ToBF16x2(one(16), one(24)));
}
TROOP_DEVICE uint4 EightAsBF16(unsigned first, unsigned second) {
  const uint2 low = FourAsBF16(first), high = FourAsBF16(second);
  return make_uint4(low.x, low.y, high.x, high.y);
}
TROOP_DEVICE uint4 EightOf(const std::uint8_t* x) {
  const uint2 bytes = *reinterpret_cast<const uint2*>(x);
  return EightAsBF16(bytes.x, bytes.y);
}

// Stores a sum as the element type.
TROOP_DEVICE void StoreOne(float* to, float x) { *to = x; }
TROOP_DEVICE void StoreOne(BF16* to, float x) { *to = ToBF16(x); }

// The first tap of a position in x.
template <class X>
TROOP_DEVICE const X* PatchAt(const ConvSizes& s, const X* x, int position) {
  // position = (image · out_height + p) · out_width + q
  const int rest = s.by_out_width.Quotient(position), q = position - rest * s.out_width;
  const int image = s.by_out_height.Quotient(rest), p = rest - image * s.out_height;
  return x +
         ((std::int64_t(image) * s.height + p * s.stride) * s.width + q * s.stride) * s.channels;
}
// Offset in elements of a tap from the first one. The taps of a kernel row are contiguous in
// memory.
TROOP_DEVICE int TapOffset(const ConvSizes& s, int tap) {
  const int row = s.by_tap_row.Quotient(tap);
  return row * s.width * s.channels + tap - row * s.by_tap_row.divisor();
}

// Interface of an operation:
//   kMatrix: true if tensor cores compute it in bf16;
//   kAAlongK, kBAlongK: true if eight contiguous elements run along k, else along m or n;
//   RowA, RowB: what a thread computes once for its m or n, for all k;
//   A, B: one element; EightA, EightB: eight contiguous ones; Store: writes a sum.

// y = activation(scale · x * w + bias).
template <class X, class Element>
struct ForwardOp {
  static constexpr bool kMatrix = std::is_same_v<Element, BF16>;
  static constexpr bool kAAlongK = true, kBAlongK = true;
  // m_size, n_size, k_size: extents of the product. x is unscaled u8 or Element; Store applies the
  // scale.
  ConvSizes s;
  int m_size, n_size, k_size;
  const X* x;
  const Element* weight;
  const float* bias;
  Element* y;
  float scale;
  Activation activation;

  struct RowA {
    const X* patch;
  };
  struct RowB {
    const Element* weights;
  };
  TROOP_DEVICE RowA StartA(int m) const { return {PatchAt(s, x, m)}; }
  TROOP_DEVICE RowB StartB(int n) const { return {weight + std::int64_t(n) * k_size}; }
  TROOP_DEVICE float A(const RowA& row, int k) const { return OneOf(row.patch + TapOffset(s, k)); }
  TROOP_DEVICE float B(const RowB& row, int k) const { return OneOf(row.weights + k); }
  TROOP_DEVICE uint4 EightA(const RowA& row, int k) const {
    return EightOf(row.patch + TapOffset(s, k));
  }
  TROOP_DEVICE uint4 EightB(const RowB& row, int k) const { return EightOf(row.weights + k); }
  TROOP_DEVICE void Store(int m, int n, float sum) const {
    // The scale of u8 inputs is applied to the sum; ReLU keeps NaN.
    float z = sum * scale + bias[n];
    if (activation == Activation::kRelu) z = z > 0 ? z : z != z ? z : 0;
    if (activation == Activation::kTanh) z = tanhf(z);
    StoreOne(y + std::int64_t(m) * n_size + n, z);
  }
};

// Gradient of the input for one phase. Splitting by phase leaves only taps that reach a position.
template <class Element>
struct DataOp {
  static constexpr bool kMatrix = std::is_same_v<Element, BF16>;
  static constexpr bool kAAlongK = true, kBAlongK = false;
  ConvSizes s;
  int m_size, n_size, k_size;
  int phase_h, phase_w;
  Divisor rows, columns;  // positions of the phase in an image
  Divisor taps_w;         // taps along w that reach them
  const Element* weight;
  const Element* dz;
  const Element* relu_of;
  Element* dx;

  struct RowA {
    const Element* dz;  // at tap (0, 0)
    int h, w;
  };
  struct RowB {
    int channel;
  };
  TROOP_DEVICE RowA StartA(int m) const {
    const int rest = columns.Quotient(m), w = m - rest * columns.divisor();
    const int image = rows.Quotient(rest), h = rest - image * rows.divisor();
    return {dz + ((std::int64_t(image) * s.out_height + h) * s.out_width + w) * s.filters, h, w};
  }
  TROOP_DEVICE RowB StartB(int n) const { return {n}; }
  // Address of dz for a tap, or nullptr if its window lies outside of the output.
  TROOP_DEVICE const Element* Gradient(const RowA& row, int k) const {
    const int tap = s.by_filters.Quotient(k), filter = k - tap * s.filters;
    // k counts taps (r, c) of the phase, and filters within a tap.
    const int r = taps_w.Quotient(tap), c = tap - r * taps_w.divisor();
    // Output position of the window in which this tap meets the input position.
    const int p = row.h - r, q = row.w - c;
    if (p < 0 || q < 0 || p >= s.out_height || q >= s.out_width) return nullptr;
    return row.dz - std::int64_t(r * s.out_width + c) * s.filters + filter;
  }
  TROOP_DEVICE const Element* Weight(const RowB& row, int k) const {
    const int tap = s.by_filters.Quotient(k), filter = k - tap * s.filters;
    // Taps of a phase are `stride` apart in the kernel.
    const int row_of = taps_w.Quotient(tap), column_of = tap - row_of * taps_w.divisor();
    const int r = row_of * s.stride + phase_h, c = column_of * s.stride + phase_w;
    return weight + (std::int64_t(filter * s.kernel + r) * s.kernel + c) * s.channels + row.channel;
  }
  TROOP_DEVICE float A(const RowA& row, int k) const {
    const Element* at = Gradient(row, k);
    return at == nullptr ? 0 : OneOf(at);
  }
  TROOP_DEVICE float B(const RowB& row, int k) const { return OneOf(Weight(row, k)); }
  TROOP_DEVICE uint4 EightA(const RowA& row, int k) const {
    const Element* at = Gradient(row, k);
    return at == nullptr ? make_uint4(0, 0, 0, 0) : EightOf(at);
  }
  TROOP_DEVICE uint4 EightB(const RowB& row, int k) const { return EightOf(Weight(row, k)); }
  TROOP_DEVICE void Store(int m, int n, float sum) const {
    const int rest = columns.Quotient(m), w = m - rest * columns.divisor();
    const int image = rows.Quotient(rest), h = rest - image * rows.divisor();
    const std::int64_t at = ((std::int64_t(image) * s.height + h * s.stride + phase_h) * s.width +
                             w * s.stride + phase_w) *
                                s.channels +
                            n;
    // relu_of has the layout of dx.
    if (relu_of != nullptr && !(OneOf(relu_of + at) > 0)) sum = 0;
    StoreOne(dx + at, sum);
  }
};

// Partial gradient of the weights, over the positions of one part.
template <class X, class Element>
struct WeightOp {
  static constexpr bool kMatrix = std::is_same_v<Element, BF16>;
  static constexpr bool kAAlongK = false, kBAlongK = false;
  ConvSizes s;
  int m_size, n_size, k_size;
  const X* x;
  const Element* dz;
  float* partial;  // [parts, filters, taps]
  int part;

  struct RowA {
    int offset;
  };
  struct RowB {
    int filter;
  };
  TROOP_DEVICE RowA StartA(int m) const { return {TapOffset(s, m)}; }
  TROOP_DEVICE RowB StartB(int n) const { return {n}; }
  TROOP_DEVICE float A(const RowA& row, int k) const {
    return OneOf(PatchAt(s, x, k) + row.offset);
  }
  TROOP_DEVICE float B(const RowB& row, int k) const {
    return OneOf(dz + std::int64_t(k) * n_size + row.filter);
  }
  TROOP_DEVICE uint4 EightA(const RowA& row, int k) const {
    return EightOf(PatchAt(s, x, k) + row.offset);
  }
  TROOP_DEVICE uint4 EightB(const RowB& row, int k) const {
    return EightOf(dz + std::int64_t(k) * n_size + row.filter);
  }
  TROOP_DEVICE void Store(int m, int n, float sum) const {
    partial[(std::int64_t(part) * n_size + n) * m_size + m] = sum;
  }
};

}  // namespace troop::cuda
