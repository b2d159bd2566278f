#pragma once

#include <type_traits>

#include "kernels/cuda/conv/conv2d.h"
#include "kernels/cuda/runtime/device_code.h"
#include "kernels/cuda/runtime/fast_divide.h"

// The three products of a convolution, as what a tiled product c [M, N] = Σ_k a(m, k) b(k, n) must
// know of each: where elements lie, and what becomes of a sum. Device code, for conv*.cu.
//   forward:  m: a position (image, p, q), k: a tap and channel (r, s, c), n: a filter
//   data:     for each phase (h mod stride, w mod stride): m: a position (image, h', w') of that
//   phase, k: (r', s', filter)
//             of the taps that reach it, n: a channel
//   weight:   m: (r, s, c), k: a position, n: a filter; k is split among blocks, and the parts
//   added up afterwards
namespace troop::cuda {

// Sizes in 32 bits: the host has seen to it that they fit (positions of a batch, elements of an
// image).
struct ConvSizes {
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
  Divisor by_filters, by_tap_row, by_out_height, by_out_width;  // in the innermost loops
  TROOP_HOST_DEVICE int taps() const { return kernel * kernel * channels; }
};

// One element, or eight that follow each other as bf16 (what 16 bytes hold).
TROOP_DEVICE float OneOf(const float* x) { return *x; }
TROOP_DEVICE float OneOf(const BF16* x) { return ToFloat(*x); }
TROOP_DEVICE float OneOf(const std::uint8_t* x) { return float(*x); }
TROOP_DEVICE uint4 EightOf(const BF16* x) { return *reinterpret_cast<const uint4*>(x); }
// Four bytes as bf16, exact: a byte has eight bits. As the lowest bits of 2^23 they are a float
// without a conversion of integers, of which a multiprocessor makes an eighth of what it adds.
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

TROOP_DEVICE void StoreOne(float* to, float x) { *to = x; }
TROOP_DEVICE void StoreOne(BF16* to, float x) { *to = ToBF16(x); }

// x of a position, before its taps.
template <class X>
TROOP_DEVICE const X* PatchAt(const ConvSizes& s, const X* x, int position) {
  const int rest = s.by_out_width.Quotient(position), q = position - rest * s.out_width;
  const int image = s.by_out_height.Quotient(rest), p = rest - image * s.out_height;
  return x +
         ((std::int64_t(image) * s.height + p * s.stride) * s.width + q * s.stride) * s.channels;
}
// How far a tap is from there. Taps of a row of the kernel follow each other in memory.
TROOP_DEVICE int TapOffset(const ConvSizes& s, int tap) {
  const int row = s.by_tap_row.Quotient(tap);
  return row * s.width * s.channels + tap - row * s.by_tap_row.divisor();
}

// Each operation: kMatrix: tensor cores can make it. RowA, RowB: what is the same for a thread's m
// or n through all k.

template <class X, class Element>
struct ForwardOp {
  static constexpr bool kMatrix = std::is_same_v<Element, BF16>;
  static constexpr bool kAAlongK = true, kBAlongK = true;  // which way eight elements go
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
    float z = sum * scale + bias[n];
    if (activation == Activation::kRelu) z = z > 0 ? z : z != z ? z : 0;
    if (activation == Activation::kTanh) z = tanhf(z);
    StoreOne(y + std::int64_t(m) * n_size + n, z);
  }
};

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
    const Element* dz;  // of the tap (0, 0)
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
  // nullptr: the tap's window lies outside.
  TROOP_DEVICE const Element* Gradient(const RowA& row, int k) const {
    const int tap = s.by_filters.Quotient(k), filter = k - tap * s.filters;
    const int r = taps_w.Quotient(tap), c = tap - r * taps_w.divisor();
    const int p = row.h - r, q = row.w - c;
    if (p < 0 || q < 0 || p >= s.out_height || q >= s.out_width) return nullptr;
    return row.dz - std::int64_t(r * s.out_width + c) * s.filters + filter;
  }
  TROOP_DEVICE const Element* Weight(const RowB& row, int k) const {
    const int tap = s.by_filters.Quotient(k), filter = k - tap * s.filters;
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
    if (relu_of != nullptr && !(OneOf(relu_of + at) > 0)) sum = 0;
    StoreOne(dx + at, sum);
  }
};

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
