// Implements the change from images with channels last to PyTorch's flat order, channels first.
#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// A transposition of [h w, c] in each row.
class FlattenLayer final : public Module {
 public:
  explicit FlattenLayer(const Shape& image) : image_(image) {}

  std::span<const ParamSpec> params() const override { return {}; }

  // Neither pass needs memory.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, image_.elements(), "flatten"));
    return Plan{.out = {{DType::kF32, Shape{in[0].shape[0], image_.elements()}}}};
  }
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    WithElement(in[0].dtype(), [&]<class X>(X*) {
      WithElement(out[0].dtype(), [&]<class Y>(Y*) {
        const std::span<const X> x = ElementsOf<X>(in[0]);
        const std::span<Y> y = ElementsOf<Y>(out[0]);
        ForEach(in[0].dim(0), [&](std::size_t here, std::size_t there) {
          y[there] = StoreElement<Y>(LoadElement(x[here]));
        });
      });
    });
  }

  // The inverse.
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor> dout,
                Cache, std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    WithElement(dout[0].dtype(), [&]<class Y>(Y*) {
      WithElement(din[0].dtype(), [&]<class X>(X*) {
        const std::span<const Y> dy = ElementsOf<Y>(dout[0]);
        const std::span<X> dx = ElementsOf<X>(din[0]);
        ForEach(din[0].dim(0), [&](std::size_t here, std::size_t there) {
          dx[here] = StoreElement<X>(LoadElement(dy[there]));
        });
      });
    });
  }

 private:
  // Calls f(index with channels last, index with channels first) for every element of `rows`
  // images.
  template <class F>
  void ForEach(std::int64_t rows, F f) const {
    const auto pixels = std::size_t(image_[0] * image_[1]), channels = std::size_t(image_[2]);
    for (std::size_t b = 0; b < std::size_t(rows); ++b) {
      const std::size_t row = b * pixels * channels;
      for (std::size_t p = 0; p < pixels; ++p) {
        for (std::size_t c = 0; c < channels; ++c) f(row + p * channels + c, row + c * pixels + p);
      }
    }
  }

  const Shape image_;  // [h, w, c]
};

}  // namespace

std::unique_ptr<Module> MakeFlatten(std::int64_t height, std::int64_t width,
                                    std::int64_t channels) {
  return std::make_unique<FlattenLayer>(Shape{height, width, channels});
}

}  // namespace troop
