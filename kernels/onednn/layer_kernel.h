#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/elementwise/activation.h"

namespace troop {

// A layer's parameters in a flat f32 buffer. weight: in the plain layout that the layer documents;
// bias: [out]. REQUIRES: 4-byte alignment; 64-byte alignment is faster.
struct LayerWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
// Gradient of a layer's parameters, in the same layouts.
struct LayerGradient {
  float* weight = nullptr;
  float* bias = nullptr;
};

// Options of a layer. compute: element type of inputs, weights and products; sums, parameters and
// their gradients are always f32. kBF16 requires BF16Available().
struct KernelOptions {
  DType compute = DType::kF32;
  Activation activation = Activation::kNone;
};

// One weighted layer, y = activation(W * x + b). Each batch size is compiled on first use (0.2 to 2
// ms; 20 ms for the first in a process) and kept. The layer holds copies of the weights in the
// layouts that these compilations selected. A batch size that was used before allocates nothing.
// Thread-compatible: one owner thread at a time; ownership may move between threads. The same input
// gives the same bytes on one machine. Machines differ within rounding, since the library selects
// the order of sums.
class LayerKernel {
 public:
  virtual ~LayerKernel() = default;

  // Applies changed weights: repacks every layout in use. O(weights). Until the next Pack, every
  // call must pass weights with the same contents.
  virtual void Pack(const LayerWeights& weights) = 0;

  // y = activation(W x + b). x: [batch, in…] of the compute dtype; y: [batch, out…] of the compute
  // dtype or f32. 64-byte aligned.
  virtual void Forward(std::int64_t batch, const LayerWeights& weights, const void* x, void* y,
                       DType y_dtype) = 0;
  // dx = the gradient of x, overwritten. dz: [batch, out…] of the compute dtype, the gradient
  // before the activation; dx: [batch, in…] of the compute dtype or f32.
  virtual void BackwardData(std::int64_t batch, const LayerWeights& weights, const void* dz,
                            void* dx, DType dx_dtype) = 0;
  // gradient (+)= dz ⊗ x. `accumulate` false: the gradient is overwritten.
  virtual void BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                              const LayerGradient& gradient, bool accumulate) = 0;
};

// True if layers can compute in bf16 on this machine, natively or emulated.
bool BF16Available();

// Sets the number of threads of all later kernel calls in this process. The default is 1: on a
// machine shared with busy processes, a team of spinning threads loses whole scheduler slices.
// REQUIRES: threads > 0.
void SetKernelThreads(int threads);

}  // namespace troop
