#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/activation.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Forward and backward pass of a whole small network in one call: nothing is allocated, packed or
// dispatched between layers. Weights are used in the row-major form that they are trained in ([out,
// in], [filters, kernel, kernel, channels]). The forward pass of small layers is faster with a
// transposed copy.

// Fully connected layer.
struct FusedLinear {
  std::int64_t in = 0, out = 0;
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // offsets in value and gradient: [out, in], [out]
};

// Convolution layer, NHWC, no padding.
struct FusedConv {
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t filters = 0, kernel = 0, stride = 1;  // filters: 16 or 32
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // [filters, kernel, kernel, channels], [filters]
  // Always inlined for the reason given in kernels/simd/vec.h: the linker could keep the AVX-512
  // copy.
  [[gnu::always_inline]] std::int64_t out_height() const { return (height - kernel) / stride + 1; }
  [[gnu::always_inline]] std::int64_t out_width() const { return (width - kernel) / stride + 1; }
};

// Network: optional input conversion and convolution, a trunk of fully connected layers, and one or
// two streams after it.
struct FusedNet {
  static constexpr int kTrunkMax = 6;
  static constexpr int kStreamMax = 2;
  std::int64_t inputs = 0;  // elements of one observation
  bool input_u8 = false;
  float input_scale = 1;
  bool has_conv = false;
  FusedConv conv;
  int trunk_count = 0;
  FusedLinear trunk[kTrunkMax];
  // Not dueling: the only stream is `advantage`, whose result is q. Dueling: both streams have
  // stream_count layers, and q = v + a - mean(a) (Wang et al. 2016, eq. 9).
  bool dueling = false;
  int stream_count = 1;
  FusedLinear value[kStreamMax];
  FusedLinear advantage[kStreamMax];
  [[gnu::always_inline]] std::int64_t actions() const { return advantage[stream_count - 1].out; }
};

// Number of floats of the activations of a batch (written by forward, read by backward), and of the
// scratch that either call needs besides them.
std::int64_t SmallNetActivations(const FusedNet& net, std::int64_t batch);
std::int64_t SmallNetScratch(const FusedNet& net, std::int64_t batch);

// Arguments of a call. Pointers are 64-byte aligned, except `input` and q, which have no alignment
// requirement.
struct FusedNetForward {
  std::int64_t batch = 0;
  const float* value = nullptr;
  const float* transposed = nullptr;  // from `transpose` of the same value; nullptr: slower
  const void* input = nullptr;        // [batch, inputs] f32 or u8
  float* activations = nullptr;       // SmallNetActivations
  float* scratch = nullptr;           // SmallNetScratch
  float* q = nullptr;                 // [batch, actions]
};
struct FusedNetBackward {
  std::int64_t batch = 0;
  const float* value = nullptr;
  const void* input = nullptr;         // as in the forward call
  const float* activations = nullptr;  // as in the forward call
  float* scratch = nullptr;
  const float* dq = nullptr;  // [batch, actions]
  float* gradient = nullptr;  // of the parameters, laid out like value
  bool accumulate = true;     // false: the gradient is overwritten, except its padding
};

// Function table. Levels agree within rounding (docs/design/numerics.md): the order of sums
// differs, and kPlain has no fused multiply-add. One level always gives the same bytes for the same
// batch. The q of an item depends on the rest of its batch only within rounding.
struct FusedNetKernels {
  // Writes the weights that forward reads transposed to `transposed`, at the offsets of `value`.
  // About 0.1 ns per weight; weights of large layers are not transposed.
  void (*transpose)(const FusedNet& net, const float* value, float* transposed);
  void (*forward)(const FusedNet& net, const FusedNetForward& call);
  void (*backward)(const FusedNet& net, const FusedNetBackward& call);
};
const FusedNetKernels& SmallNetKernelsFor(CpuLevel level);

}  // namespace troop
