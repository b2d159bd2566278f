// Convolution layer: oneDNN, with our own weight gradient in bf16 (conv2d_weight_gradient.h).
#include "kernels/conv/conv2d.h"

#include <utility>

#include "core/base/buffer.h"
#include "kernels/conv/conv2d_weight_gradient.h"
#include "kernels/onednn/onednn_layer.h"

namespace troop {
namespace {

// A oneDNN layer whose weight gradient is ours.
class BF16Conv final : public LayerKernel {
 public:
  BF16Conv(const ConvShape& shape, std::unique_ptr<LayerKernel> library, ConvGradientBF16 gradient)
      : shape_(shape),
        library_(std::move(library)),
        gradient_(gradient),
        scratch_(ConvGradientScratch(shape)) {}

  void Pack(const LayerWeights& weights) override { library_->Pack(weights); }
  void Forward(std::int64_t batch, const LayerWeights& weights, const void* x, void* y,
               DType y_dtype) override {
    library_->Forward(batch, weights, x, y, y_dtype);
  }
  void BackwardData(std::int64_t batch, const LayerWeights& weights, const void* dz, void* dx,
                    DType dx_dtype) override {
    library_->BackwardData(batch, weights, dz, dx, dx_dtype);
  }
  void BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                      const LayerGradient& gradient, bool accumulate) override {
    // Writes the plain layout directly; no reorder is needed.
    gradient_({.shape = shape_,
               .batch = batch,
               .x = static_cast<const BF16*>(x),
               .dz = static_cast<const BF16*>(dz),
               .scratch = scratch_.data(),
               .dw = gradient.weight,
               .db = gradient.bias,
               .accumulate = accumulate});
  }

 private:
  const ConvShape shape_;
  const std::unique_ptr<LayerKernel> library_;
  const ConvGradientBF16 gradient_;
  MutableBuffer scratch_;
};

}  // namespace

std::unique_ptr<LayerKernel> MakeConvKernel(const ConvShape& shape, const KernelOptions& options) {
  auto library = MakeDnnlConv(shape, options);
  const ConvGradientBF16 gradient = ConvGradientBF16For(BestCpuLevel());
  constexpr std::int64_t kElementsMax = 1 << 30;  // per item: positions are 32-bit
  // f32, processors without bf16 products, padding, groups and huge images use oneDNN alone.
  if (!shape.plain() || options.compute != DType::kBF16 || gradient == nullptr ||
      shape.height * shape.width * shape.channels > kElementsMax)
    return library;
  return std::make_unique<BF16Conv>(shape, std::move(library), gradient);
}

}  // namespace troop
