// Elementwise kernels: derivatives of activations, GELU and conversions.
#include "kernels/cuda/ops/activation.h"

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

// Eight elements per thread: one 16-byte access of bf16, or two of f32.
constexpr int kThreads = 256, kEach = 8;

// One thread per kEach elements.
LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads * kEach))), dim3(kThreads)};
}

// dy times the derivative of the activation, from its result y.
TROOP_DEVICE float Derived(Activation activation, float y, float dy) {
  if (activation == Activation::kRelu) return y > 0 ? dy : 0;
  if (activation == Activation::kTanh) return dy * (1 - y * y);
  return dy;
}

// √½, √(2/π) and the cubic coefficient of the GELU approximation.
constexpr float kRootHalf = 0.70710678118f, kRootTwoOverPi = 0.79788456080f, kCubic = 0.044715f;
constexpr float kNormal = 0.39894228040f;  // 1/√(2π)

TROOP_DEVICE float Tanh3(float z) { return tanhf(kRootTwoOverPi * (z + kCubic * z * z * z)); }
// Normal distribution: Φ(z) to 1e-7, and exp(-z²/2), which both Φ and the derivative of GELU need
// (Abramowitz & Stegun 7.1.26). With erfcf the kernel takes three times as long.
struct Normal {
  float below, bell;
};
TROOP_DEVICE Normal NormalAt(float z) {
  const float bell = expf(-0.5f * z * z), t = 1 / (1 + 0.3275911f * kRootHalf * fabsf(z));
  const float tail =
      0.5f * bell * t *
      (0.254829592f +
       t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return {z < 0 ? tail : 1 - tail, bell};
}
// GELU and its derivative; the formulas are at GeluForm in kernels/transformer/layer_norm_gelu.h.
TROOP_DEVICE float GeluOf(GeluForm form, float z) {
  if (form == GeluForm::kErf) return z * NormalAt(z).below;
  return 0.5f * z * (1 + Tanh3(z));
}
TROOP_DEVICE float GeluSlope(GeluForm form, float z) {
  if (form == GeluForm::kErf) {
    const Normal normal = NormalAt(z);
    return normal.below + z * kNormal * normal.bell;
  }
  // Derivative of the tanh approximation.
  const float t = Tanh3(z);
  return 0.5f * (1 + t) + 0.5f * z * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * z * z);
}

// Forward if dy is nullptr, else backward. The last thread handles a partial group of elements one
// by one.
template <class T>
TROOP_KERNEL void GeluKernel(GeluForm form, std::int64_t n, const T* z, const T* dy, T* out) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach <= n) {
    float a[kEach], b[kEach];
    GetVector(z + i, a);
    if (dy != nullptr) GetVector(dy + i, b);
    for (int j = 0; j < kEach; ++j)
      b[j] = dy == nullptr ? GeluOf(form, a[j]) : b[j] * GeluSlope(form, a[j]);
    PutVector(out + i, b);
    return;
  }
  for (std::int64_t j = i; j < n; ++j) {
    const float a = Get(z + j);
    Put(out + j, dy == nullptr ? GeluOf(form, a) : Get(dy + j) * GeluSlope(form, a));
  }
}

// Dispatch on the element type. dy of nullptr: forward, to dz.
void RunGelu(Stream& stream, const char* name, const GeluBackwardArgs& args) {
  const std::int64_t n = args.n;
  if (args.dtype == DType::kBF16) {
    Launch(stream, name, Over(n), GeluKernel<BF16>, args.form, n, static_cast<const BF16*>(args.z),
           static_cast<const BF16*>(args.dy), static_cast<BF16*>(args.dz));
  } else {
    Launch(stream, name, Over(n), GeluKernel<float>, args.form, n,
           static_cast<const float*>(args.z), static_cast<const float*>(args.dy),
           static_cast<float*>(args.dz));
  }
}

// dz may be dy: each thread reads its elements before it writes them.
template <class T>
TROOP_KERNEL void ActivationBackwardKernel(Activation activation, std::int64_t n, const T* y,
                                           const T* dy, T* dz) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach <= n) {
    float a[kEach], b[kEach];
    GetVector(y + i, a);
    GetVector(dy + i, b);
    for (int j = 0; j < kEach; ++j) b[j] = Derived(activation, a[j], b[j]);
    PutVector(dz + i, b);
    return;
  }
  for (std::int64_t j = i; j < n; ++j) Put(dz + j, Derived(activation, Get(y + j), Get(dy + j)));
}

// aligned: both addresses are multiples of 16. A slice of a batch may start at any element.
template <class From, class To>
TROOP_KERNEL void ConvertKernel(std::int64_t n, bool aligned, const From* from, float scale,
                                To* to) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (aligned && i + kEach <= n) {
    float x[kEach];
    GetVector(from + i, x);
    for (int j = 0; j < kEach; ++j) x[j] *= scale;
    PutVector(to + i, x);
    return;
  }
  const std::int64_t end = i + kEach < n ? i + kEach : n;
  for (std::int64_t j = i; j < end; ++j) Put(to + j, Get(from + j) * scale);
}

// Dispatch on the type of `to`. From: the type of `from`.
template <class From>
void ConvertFrom(Stream& stream, const ConvertScaledArgs& args) {
  const std::int64_t n = args.n;
  const auto* const from = static_cast<const From*>(args.from);
  const bool aligned =
      (reinterpret_cast<std::uintptr_t>(args.from) | reinterpret_cast<std::uintptr_t>(args.to)) %
          16 ==
      0;
  if (args.to_dtype == DType::kBF16) {
    Launch(stream, "ConvertScaled", Over(n), ConvertKernel<From, BF16>, n, aligned, from,
           args.scale, static_cast<BF16*>(args.to));
  } else {
    Launch(stream, "ConvertScaled", Over(n), ConvertKernel<From, float>, n, aligned, from,
           args.scale, static_cast<float*>(args.to));
  }
}

}  // namespace

void ActivationBackward(Stream& stream, const ActivationBackwardArgs& args) {
  if (args.dtype == DType::kBF16) {
    Launch(stream, "ActivationBackward", Over(args.n), ActivationBackwardKernel<BF16>,
           args.activation, args.n, static_cast<const BF16*>(args.y),
           static_cast<const BF16*>(args.dy), static_cast<BF16*>(args.dz));
  } else {
    Launch(stream, "ActivationBackward", Over(args.n), ActivationBackwardKernel<float>,
           args.activation, args.n, static_cast<const float*>(args.y),
           static_cast<const float*>(args.dy), static_cast<float*>(args.dz));
  }
}

void Gelu(Stream& stream, const GeluArgs& args) {
  RunGelu(stream, "Gelu",
          {.form = args.form, .dtype = args.dtype, .n = args.n, .z = args.z, .dz = args.y});
}

void GeluBackward(Stream& stream, const GeluBackwardArgs& args) {
  RunGelu(stream, "GeluBackward", args);
}

void ConvertScaled(Stream& stream, const ConvertScaledArgs& args) {
  if (args.from_dtype == DType::kU8) {
    ConvertFrom<std::uint8_t>(stream, args);
  } else if (args.from_dtype == DType::kBF16) {
    ConvertFrom<BF16>(stream, args);
  } else {
    ConvertFrom<float>(stream, args);
  }
}

}  // namespace troop::cuda
