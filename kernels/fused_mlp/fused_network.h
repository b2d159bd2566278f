#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/activation.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Forward and backward of a whole small network in one call: nothing is allocated, packed or
// dispatched between the layers. Weights are used in the row-major form they are trained in
// ([out, in], [filters, kernel, kernel, channels]); only the small layers' forward is faster with a
// transposed copy.

struct SmallLinear {
  std::int64_t in = 0, out = 0;
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // offsets in value and gradient: [out, in], [out]
};

// NHWC, no padding.
struct SmallConv {
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t filters = 0, kernel = 0, stride = 1;  // filters: 16 or 32
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // [filters, kernel, kernel, channels], [filters]
  // Always inlined, as kernels/simd/vec.h says: a shared copy could be one with AVX-512.
  [[gnu::always_inline]] std::int64_t out_height() const { return (height - kernel) / stride + 1; }
  [[gnu::always_inline]] std::int64_t out_width() const { return (width - kernel) / stride + 1; }
};

struct SmallNet {
  static constexpr int kTrunkMax = 6;
  static constexpr int kStreamMax = 2;
  std::int64_t inputs = 0;  // elements of one observation
  bool input_u8 = false;
  float input_scale = 1;
  bool has_conv = false;
  SmallConv conv;
  int trunk_count = 0;
  SmallLinear trunk[kTrunkMax];
  // Not dueling: q = advantage[0], no value stream. Dueling: both streams have stream_count layers,
  // and q = v + a - mean(a) (Wang et al. 2016, eq. 9).
  bool dueling = false;
  int stream_count = 1;
  SmallLinear value[kStreamMax];
  SmallLinear advantage[kStreamMax];
  [[gnu::always_inline]] std::int64_t actions() const { return advantage[stream_count - 1].out; }
};

// Floats of the activations of a batch (what Forward writes and Backward reads), and of the scratch
// that either call needs beside them.
std::int64_t SmallNetActivations(const SmallNet& net, std::int64_t batch);
std::int64_t SmallNetScratch(const SmallNet& net, std::int64_t batch);

// All pointers 64-byte aligned but `input`, which may lie anywhere.
struct SmallNetForward {
  std::int64_t batch = 0;
  const float* value = nullptr;
  const float* transposed = nullptr;  // of the same value, from `transpose`; nullptr: slower
  const void* input = nullptr;        // [batch, inputs] f32 or u8
  float* activations = nullptr;       // SmallNetActivations
  float* scratch = nullptr;           // SmallNetScratch
  float* q = nullptr;                 // [batch, actions]; any alignment
};
struct SmallNetBackward {
  std::int64_t batch = 0;
  const float* value = nullptr;
  const void* input = nullptr;         // of the Forward
  const float* activations = nullptr;  // of the Forward
  float* scratch = nullptr;
  const float* dq = nullptr;  // [batch, actions]
  float* gradient = nullptr;  // of the parameters
  bool accumulate = true;     // false: gradient is overwritten, but for its padding
};

// Results of the levels agree within rounding (docs/design/numerics.md): sums have another order
// and the plain one has no fused multiply-add. The same level always gives the same bytes, and an
// item's q doesn't depend on the batch it is in only within rounding.
struct SmallNetKernels {
  // Writes those weights that are read transposed into `transposed`, which is laid out as `value`.
  // About 0.1 ns per weight; weights of large layers are used as they are.
  void (*transpose)(const SmallNet& net, const float* value, float* transposed);
  void (*forward)(const SmallNet& net, const SmallNetForward& call);
  void (*backward)(const SmallNet& net, const SmallNetBackward& call);
};
const SmallNetKernels& SmallNetKernelsFor(CpuLevel level);

}  // namespace troop
