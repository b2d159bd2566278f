#include "kernels/cuda/activation.h"

#include "kernels/cuda/launch.h"

namespace troop::cuda {
namespace {

// Eight elements to a thread: 16 bytes of bf16, two times 16 of f32.
constexpr int kThreads = 256, kEach = 8;

LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads * kEach))), dim3(kThreads)};
}

TROOP_DEVICE void LoadEight(const float* from, float (&x)[kEach]) {
  const float4 a = *reinterpret_cast<const float4*>(from);
  const float4 b = *reinterpret_cast<const float4*>(from + 4);
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
  x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
TROOP_DEVICE void LoadEight(const BF16* from, float (&x)[kEach]) {
  const uint4 a = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {a.x, a.y, a.z, a.w};
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
TROOP_DEVICE void LoadEight(const std::uint8_t* from, float (&x)[kEach]) {
  const uint2 a = *reinterpret_cast<const uint2*>(from);
  for (int i = 0; i < 4; ++i) {
    x[i] = float(a.x >> (8 * i) & 0xff);
    x[i + 4] = float(a.y >> (8 * i) & 0xff);
  }
}
TROOP_DEVICE void StoreEight(float* to, const float (&x)[kEach]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(x[4], x[5], x[6], x[7]);
}
TROOP_DEVICE void StoreEight(BF16* to, const float (&x)[kEach]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(ToBF16x2(x[0], x[1]), ToBF16x2(x[2], x[3]),
                                             ToBF16x2(x[4], x[5]), ToBF16x2(x[6], x[7]));
}
TROOP_DEVICE float LoadOne(const float* from) { return *from; }
TROOP_DEVICE float LoadOne(const BF16* from) { return ToFloat(*from); }
TROOP_DEVICE float LoadOne(const std::uint8_t* from) { return float(*from); }
TROOP_DEVICE void StoreOne(float* to, float x) { *to = x; }
TROOP_DEVICE void StoreOne(BF16* to, float x) { *to = ToBF16(x); }

TROOP_DEVICE float Derived(Activation activation, float y, float dy) {
  if (activation == Activation::kRelu) return y > 0 ? dy : 0;
  if (activation == Activation::kTanh) return dy * (1 - y * y);
  return dy;
}

template <class T>
TROOP_KERNEL void ActivationBackwardKernel(Activation activation, std::int64_t n, const T* y,
                                           const T* dy, T* dz) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach <= n) {
    float a[kEach], b[kEach];
    LoadEight(y + i, a);
    LoadEight(dy + i, b);
    for (int j = 0; j < kEach; ++j) b[j] = Derived(activation, a[j], b[j]);
    StoreEight(dz + i, b);
    return;
  }
  for (std::int64_t j = i; j < n; ++j)
    StoreOne(dz + j, Derived(activation, LoadOne(y + j), LoadOne(dy + j)));
}

template <class From, class To>
TROOP_KERNEL void ConvertKernel(std::int64_t n, const From* from, float scale, To* to) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach <= n) {
    float x[kEach];
    LoadEight(from + i, x);
    for (int j = 0; j < kEach; ++j) x[j] *= scale;
    StoreEight(to + i, x);
    return;
  }
  for (std::int64_t j = i; j < n; ++j) StoreOne(to + j, LoadOne(from + j) * scale);
}

template <class From>
void ConvertFrom(Stream& stream, std::int64_t n, const From* from, float scale, void* to,
                 DType to_dtype) {
  if (to_dtype == DType::kBF16) {
    Launch(stream, "ConvertScaled", Over(n), ConvertKernel<From, BF16>, n, from, scale,
           static_cast<BF16*>(to));
  } else {
    Launch(stream, "ConvertScaled", Over(n), ConvertKernel<From, float>, n, from, scale,
           static_cast<float*>(to));
  }
}

}  // namespace

void ActivationBackward(Stream& stream, Activation activation, DType dtype, std::int64_t n,
                        const void* y, const void* dy, void* dz) {
  if (dtype == DType::kBF16) {
    Launch(stream, "ActivationBackward", Over(n), ActivationBackwardKernel<BF16>, activation, n,
           static_cast<const BF16*>(y), static_cast<const BF16*>(dy), static_cast<BF16*>(dz));
  } else {
    Launch(stream, "ActivationBackward", Over(n), ActivationBackwardKernel<float>, activation, n,
           static_cast<const float*>(y), static_cast<const float*>(dy), static_cast<float*>(dz));
  }
}

void ConvertScaled(Stream& stream, std::int64_t n, const void* from, DType from_dtype, float scale,
                   void* to, DType to_dtype) {
  if (from_dtype == DType::kU8) {
    ConvertFrom(stream, n, static_cast<const std::uint8_t*>(from), scale, to, to_dtype);
  } else if (from_dtype == DType::kBF16) {
    ConvertFrom(stream, n, static_cast<const BF16*>(from), scale, to, to_dtype);
  } else {
    ConvertFrom(stream, n, static_cast<const float*>(from), scale, to, to_dtype);
  }
}

}  // namespace troop::cuda
