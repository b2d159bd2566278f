// Implements the layer that surrounds images with zeros.
#include <algorithm>

#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// Copies rows of pixels, whatever their precision.
class PaddingLayer final : public Module {
 public:
  explicit PaddingLayer(const ImagePadding& padding) : padding_(padding) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, Inner().elements(), "padding"));
    return Plan{.out = {{DType::kF32, padding_.out().Prepend(in[0].shape[0])}}};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    // Zero bytes are 0 in either precision.
    std::ranges::fill(out[0].bytes(), std::byte{0});
    ForRows(in[0].dim(0), DTypeSize(in[0].dtype()),
            [&](std::size_t inner, std::size_t outer, std::size_t bytes) {
              std::ranges::copy(in[0].bytes().subspan(inner, bytes),
                                out[0].bytes().begin() + std::ptrdiff_t(outer));
            });
  }

  // The gradient of the zeros is dropped.
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor> dout,
                Cache, std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    ForRows(din[0].dim(0), DTypeSize(din[0].dtype()),
            [&](std::size_t inner, std::size_t outer, std::size_t bytes) {
              std::ranges::copy(dout[0].bytes().subspan(outer, bytes),
                                din[0].bytes().begin() + std::ptrdiff_t(inner));
            });
  }

 private:
  Shape Inner() const { return {padding_.height, padding_.width, padding_.channels}; }

  // Calls f for each row of each image: its offset without and with padding, and its size, in
  // bytes.
  template <class F>
  void ForRows(std::int64_t batch, std::size_t element, F f) const {
    const Shape outer = padding_.out();
    const std::size_t row = std::size_t(padding_.width * padding_.channels) * element;
    const std::size_t outer_row = std::size_t(outer[1] * outer[2]) * element;
    const std::size_t left = std::size_t(padding_.padding * padding_.channels) * element;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t y = 0; y < padding_.height; ++y) {
        f(std::size_t(b * padding_.height + y) * row,
          std::size_t(b * outer[0] + y + padding_.padding) * outer_row + left, row);
      }
    }
  }

  const ImagePadding padding_;
};

}  // namespace

std::unique_ptr<Module> MakePadding(const ImagePadding& padding) {
  return std::make_unique<PaddingLayer>(padding);
}

}  // namespace troop
