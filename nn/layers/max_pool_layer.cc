// Implements the maximum over windows of images.
#include <algorithm>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// The cache holds the input element that each output came from, to which its gradient goes.
class MaxPoolLayer final : public Module {
 public:
  explicit MaxPoolLayer(const MaxPoolOptions& options) : options_(options) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, InElements(), "max_pool"));
    const Shape out = options_.out().Prepend(in[0].shape[0]);
    return Plan{.out = {{DType::kF32, out}},
                .cache_bytes = AlignBytes(std::size_t(out.elements()) * sizeof(std::int32_t))};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // Inference keeps no indices.
  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache cache) const override {
    WithElement(in[0].dtype(), [&]<class T>(T*) {
      const std::span<const T> x = ElementsOf<T>(in[0]);
      const std::span<T> y = ElementsOf<T>(out[0]);
      const auto image = std::size_t(InElements()), pooled = std::size_t(options_.out().elements());
      for (std::size_t b = 0; b < std::size_t(in[0].dim(0)); ++b) {
        Pool(x.subspan(b * image, image), y.subspan(b * pooled, pooled),
             cache.empty() ? nullptr : Indices(cache) + b * pooled);
      }
    });
  }

  // Windows overlap, so gradients add up.
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor> dout,
                Cache cache, std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    std::ranges::fill(din[0].bytes(), std::byte{0});
    WithElement(din[0].dtype(), [&]<class T>(T*) {
      const std::span<const T> dy = ElementsOf<T>(dout[0]);
      const std::span<T> dx = ElementsOf<T>(din[0]);
      const auto image = std::size_t(InElements()), pooled = std::size_t(options_.out().elements());
      const std::int32_t* const index = Indices(cache);
      for (std::size_t i = 0; i < dy.size(); ++i) {
        T& to = dx[i / pooled * image + std::size_t(index[i])];
        to = StoreElement<T>(LoadElement(to) + LoadElement(dy[i]));
      }
    });
  }

 private:
  std::int64_t InElements() const { return options_.height * options_.width * options_.channels; }
  // An image has at most 2^26 elements (kObservationBytesMax), so 32 bits are enough.
  static std::int32_t* Indices(Cache cache) {
    return reinterpret_cast<std::int32_t*>(cache.data());
  }

  // One image. Among equal elements the first counts, as in PyTorch; NaN wins, so that it shows.
  template <class T>
  void Pool(std::span<const T> x, std::span<T> y, std::int32_t* index) const {
    const MaxPoolOptions& o = options_;
    const Shape out = o.out();
    std::size_t at = 0;
    for (std::int64_t row = 0; row < out[0]; ++row) {
      for (std::int64_t column = 0; column < out[1]; ++column) {
        // The part of the window that lies within the image.
        const std::int64_t top = row * o.stride - o.padding, left = column * o.stride - o.padding;
        const std::int64_t y0 = std::max<std::int64_t>(top, 0);
        const std::int64_t y1 = std::min(top + o.kernel, o.height);
        const std::int64_t x0 = std::max<std::int64_t>(left, 0);
        const std::int64_t x1 = std::min(left + o.kernel, o.width);
        for (std::int64_t c = 0; c < o.channels; ++c, ++at) {
          std::int64_t best = (y0 * o.width + x0) * o.channels + c;
          float most = LoadElement(x[std::size_t(best)]);
          for (std::int64_t i = y0; i < y1; ++i) {
            for (std::int64_t j = x0; j < x1; ++j) {
              const std::int64_t place = (i * o.width + j) * o.channels + c;
              const float value = LoadElement(x[std::size_t(place)]);
              // Negated, so that NaN replaces a number, and nothing replaces NaN.
              if (most != most || value <= most) continue;
              best = place, most = value;
            }
          }
          y[at] = StoreElement<T>(most);
          if (index != nullptr) index[at] = std::int32_t(best);
        }
      }
    }
  }

  const MaxPoolOptions options_;
};

}  // namespace

// Windows that do not fit completely are left out.
Shape MaxPoolOptions::out() const {
  const auto pooled = [&](std::int64_t size) { return (size + 2 * padding - kernel) / stride + 1; };
  return {pooled(height), pooled(width), channels};
}

std::unique_ptr<Module> MakeMaxPool(const MaxPoolOptions& options) {
  TROOP_CHECK(options.kernel > 0 && options.stride > 0 && options.padding >= 0 &&
                  2 * options.padding <= options.kernel &&
                  options.kernel <= options.height + 2 * options.padding &&
                  options.kernel <= options.width + 2 * options.padding,
              "max_pool of {} x {}: kernel {}, stride {}, padding {}", options.height,
              options.width, options.kernel, options.stride, options.padding);
  return std::make_unique<MaxPoolLayer>(options);
}

}  // namespace troop
