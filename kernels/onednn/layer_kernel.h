#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/elementwise/activation.h"

namespace troop {

// Where a layer's parameters lie in a flat f32 buffer. weight: the layer's own plain layout; bias:
// [out]. 4-byte aligned is enough, 64 is faster.
struct LayerWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
struct LayerGradient {
  float* weight = nullptr;
  float* bias = nullptr;
};

// Element type of a layer's inputs, weights and products; sums, parameters and their gradients are
// f32 always. kBF16 only where BF16Available().
struct KernelOptions {
  DType compute = DType::kF32;
  Activation activation = Activation::kNone;
};

// One weighted layer, y = activation(W * x + b), compiled per batch size on first use (0.2 to 2 ms,
// the very first of a process 20 ms) and kept. Holds the weights in the layouts that those
// compilations chose. Nothing is allocated for a batch size that was seen before.
// One owner thread at a time; it may move between threads. The same input gives the same bytes on
// one machine; machines differ within rounding (sums are ordered by the library).
class LayerKernel {
 public:
  virtual ~LayerKernel() = default;

  // Takes over a changed value: repacks every layout in use. O(weights). Until the next Pack, every
  // call must be given the same contents.
  virtual void Pack(const LayerWeights& weights) = 0;

  // x: [batch, in…] compute dtype; y: [batch, out…] compute dtype or f32. 64-byte aligned.
  virtual void Forward(std::int64_t batch, const LayerWeights& weights, const void* x, void* y,
                       DType y_dtype) = 0;
  // dz: [batch, out…] compute dtype, the gradient before the activation; dx: [batch, in…] compute
  // dtype or f32, overwritten.
  virtual void BackwardData(std::int64_t batch, const LayerWeights& weights, const void* dz,
                            void* dx, DType dx_dtype) = 0;
  // gradient (+)= dz ⊗ x; `accumulate` false: overwritten.
  virtual void BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                              const LayerGradient& gradient, bool accumulate) = 0;
};

// Whether layers can compute in bf16 here (emulated or native). One answer per machine.
bool BF16Available();

// Threads that every kernel call of this process uses from now on. Default 1: a team of spinning
// threads beside busy neighbours loses whole scheduler slices. REQUIRES: threads > 0.
void SetKernelThreads(int threads);

}  // namespace troop
