// Fully connected layers: selects between oneDNN and the kernels of small_batch_linear.h.
#include "kernels/linear/linear.h"

#include <cstddef>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "kernels/elementwise/cast.h"
#include "kernels/linear/small_batch_linear.h"
#include "kernels/onednn/onednn_layer.h"

namespace troop {
namespace {

// Minimum number of weights for the narrow kernels: below it, reordering weights for oneDNN costs
// less than it saves.
constexpr std::int64_t kNarrowWeightsMin = 1 << 18;

// Scratch buffer that only grows.
class GrowingBytes {
 public:
  void* AtLeast(std::size_t size) {
    if (bytes_.size() < size) bytes_ = MutableBuffer(size);
    return bytes_.data();
  }

 private:
  MutableBuffer bytes_;
};

// Narrow kernels up to kNarrowBatchMax rows, oneDNN above. The oneDNN layer is created on first
// use.
template <class X>
class WideLinear final : public LayerKernel {
 public:
  WideLinear(const LinearShape& shape, const KernelOptions& options,
             const NarrowKernels<X>& kernels)
      : shape_(shape), options_(options), kernels_(kernels) {}

  void Pack(const LayerWeights& weights) override {
    packed_ = false;
    // Converts now, so that Pack has the cost and not the next forward pass.
    if constexpr (!kPlain) Weight(weights);
    if (library_) library_->Pack(weights);
  }

  void Forward(std::int64_t batch, const LayerWeights& weights, const void* x, void* y,
               DType y_dtype) override {
    if (batch > kNarrowBatchMax) return Library().Forward(batch, weights, x, y, y_dtype);
    // The kernels write f32 sums; activation and conversion are separate passes over them.
    const std::int64_t n = batch * shape_.out;
    float* const sums = y_dtype == DType::kF32 ? static_cast<float*>(y) : Sums(n);
    kernels_.forward(shape_, batch, Weight(weights), weights.bias, static_cast<const X*>(x),
                     Scratch(batch), sums);
    if (options_.activation != Activation::kNone)
      ActivationForward(options_.activation, n, sums, sums, DType::kF32);
    if (y_dtype != DType::kF32) ConvertScaled({.n = n, .x = sums, .y = y, .y_dtype = y_dtype});
  }

  void BackwardData(std::int64_t batch, const LayerWeights& weights, const void* dz, void* dx,
                    DType dx_dtype) override {
    if (batch > kNarrowBatchMax) return Library().BackwardData(batch, weights, dz, dx, dx_dtype);
    const std::int64_t n = batch * shape_.in;
    float* const sums = dx_dtype == DType::kF32 ? static_cast<float*>(dx) : Sums(n);
    kernels_.backward_data(shape_, batch, Weight(weights), static_cast<const X*>(dz), sums);
    if (dx_dtype != DType::kF32) ConvertScaled({.n = n, .x = sums, .y = dx, .y_dtype = dx_dtype});
  }

  void BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                      const LayerGradient& gradient, bool accumulate) override {
    if (batch > kNarrowBatchMax)
      return Library().BackwardWeight(batch, x, dz, gradient, accumulate);
    kernels_.backward_weight(shape_, batch, static_cast<const X*>(x), static_cast<const X*>(dz),
                             Scratch(batch), gradient.weight, gradient.bias, accumulate);
  }

 private:
  // f32 weights are used in place; bf16 ones are converted once per Pack.
  static constexpr bool kPlain = std::is_same_v<X, float>;

  const X* Weight(const LayerWeights& weights) {
    if constexpr (kPlain) {
      return weights.weight;
    } else {
      const std::int64_t n = shape_.in * shape_.out;
      auto* const mine = static_cast<X*>(weight_.AtLeast(std::size_t(n) * sizeof(X)));
      if (!std::exchange(packed_, true))
        ConvertScaled({.n = n, .x = weights.weight, .y = mine, .y_dtype = DTypeOf<X>::value});
      return mine;
    }
  }
  float* Sums(std::int64_t n) {
    return static_cast<float*>(sums_.AtLeast(std::size_t(n) * sizeof(float)));
  }
  float* Scratch(std::int64_t batch) {
    return static_cast<float*>(
        scratch_.AtLeast(std::size_t(NarrowScratch(shape_, batch)) * sizeof(float)));
  }
  // Created on first use: most layers see only small batches.
  LayerKernel& Library() {
    if (!library_) library_ = MakeDnnlLinear(shape_, options_);
    return *library_;
  }

  const LinearShape shape_;
  const KernelOptions options_;
  const NarrowKernels<X>& kernels_;
  std::unique_ptr<LayerKernel> library_;
  GrowingBytes weight_, sums_, scratch_;
  bool packed_ = false;
};

}  // namespace

std::unique_ptr<LayerKernel> MakeLinearKernel(const LinearShape& shape,
                                              const KernelOptions& options) {
  // Small layers use oneDNN, and so does bf16 on processors without vdpbf16ps.
  if (shape.in * shape.out < kNarrowWeightsMin) return MakeDnnlLinear(shape, options);
  if (options.compute == DType::kF32)
    return std::make_unique<WideLinear<float>>(shape, options, NarrowKernelsF32For(BestCpuLevel()));
  if (const auto* kernels = NarrowKernelsBF16For(BestCpuLevel()))
    return std::make_unique<WideLinear<BF16>>(shape, options, *kernels);
  return MakeDnnlLinear(shape, options);
}

}  // namespace troop
