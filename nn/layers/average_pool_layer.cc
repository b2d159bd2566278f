// Implements means over windows of images: fixed windows, and areas that cover the image.
#include <algorithm>
#include <utility>
#include <vector>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// Rows or columns [first, end) of one output, within the image.
struct Window {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// Windows of one axis, and the number of elements by which a sum is divided: 0 is the window's.
struct Axis {
  std::vector<Window> windows;
  std::int64_t divisor = 0;
};

// Both kinds of pooling are a list of windows per axis.
class AveragePoolLayer final : public Module {
 public:
  AveragePoolLayer(const Shape& image, Axis rows, Axis columns)
      : image_(image), rows_(std::move(rows)), columns_(std::move(columns)) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, image_.elements(), "average_pool"));
    return Plan{.out = {{DType::kF32, Out().Prepend(in[0].shape[0])}},
                .workspace_bytes = AlignBytes(std::size_t(image_.elements()) * sizeof(float))};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // The mean of each window, in f32.
  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    const auto image = std::size_t(image_.elements()), pooled = std::size_t(Out().elements());
    WithElement(in[0].dtype(), [&]<class X>(X*) {
      WithElement(out[0].dtype(), [&]<class Y>(Y*) {
        const std::span<const X> x = ElementsOf<X>(in[0]);
        const std::span<Y> y = ElementsOf<Y>(out[0]);
        for (std::size_t b = 0; b < std::size_t(in[0].dim(0)); ++b) {
          const std::span<const X> from = x.subspan(b * image, image);
          const std::span<Y> to = y.subspan(b * pooled, pooled);
          ForEachOutput([&](std::size_t at, const Window& row, const Window& column, float share) {
            for (std::size_t c = 0; c < Channels(); ++c) {
              float sum = 0;
              ForEachPixel(row, column, [&](std::size_t pixel) {
                sum += LoadElement(from[pixel * Channels() + c]);
              });
              to[at + c] = StoreElement<Y>(sum * share);
            }
          });
        }
      });
    });
  }

  // Each pixel of a window gets its share of the gradient. Windows overlap, so an image's gradient
  // is summed in f32 first.
  void Backward(const StepContext& context, std::span<const ConstTensor>,
                std::span<const ConstTensor> dout, Cache,
                std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    const auto image = std::size_t(image_.elements()), pooled = std::size_t(Out().elements());
    const std::span<float> sum(reinterpret_cast<float*>(context.workspace.data()), image);
    WithElement(dout[0].dtype(), [&]<class Y>(Y*) {
      WithElement(din[0].dtype(), [&]<class X>(X*) {
        const std::span<const Y> dy = ElementsOf<Y>(dout[0]);
        const std::span<X> dx = ElementsOf<X>(din[0]);
        for (std::size_t b = 0; b < std::size_t(din[0].dim(0)); ++b) {
          std::ranges::fill(sum, 0.0f);
          const std::span<const Y> from = dy.subspan(b * pooled, pooled);
          ForEachOutput([&](std::size_t at, const Window& row, const Window& column, float share) {
            ForEachPixel(row, column, [&](std::size_t pixel) {
              for (std::size_t c = 0; c < Channels(); ++c) {
                sum[pixel * Channels() + c] += share * LoadElement(from[at + c]);
              }
            });
          });
          for (std::size_t i = 0; i < image; ++i) dx[b * image + i] = StoreElement<X>(sum[i]);
        }
      });
    });
  }

 private:
  // Shape of an output image.
  Shape Out() const { return {std::ssize(rows_.windows), std::ssize(columns_.windows), image_[2]}; }
  std::size_t Channels() const { return std::size_t(image_[2]); }

  // Calls f(first element, rows, columns, 1 / divisor) for every output pixel of an image.
  template <class F>
  void ForEachOutput(F f) const {
    const auto length = [](const Axis& axis, const Window& w) {
      return float(axis.divisor > 0 ? axis.divisor : w.end - w.first);
    };
    std::size_t at = 0;
    for (const Window& row : rows_.windows) {
      for (const Window& column : columns_.windows) {
        f(at, row, column, 1 / (length(rows_, row) * length(columns_, column)));
        at += Channels();
      }
    }
  }
  // Calls f(pixel) for every pixel of a window.
  template <class F>
  void ForEachPixel(const Window& row, const Window& column, F f) const {
    for (std::int64_t y = row.first; y < row.end; ++y) {
      for (std::int64_t x = column.first; x < column.end; ++x) f(std::size_t(y * image_[1] + x));
    }
  }

  const Shape image_;  // [h, w, c]
  const Axis rows_, columns_;
};

// Windows of a fixed size. Padding adds zeros, which count.
Axis FixedWindows(std::int64_t size, std::int64_t outputs, const MaxPoolOptions& o) {
  Axis axis{.divisor = o.kernel};
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t first = i * o.stride - o.padding;
    axis.windows.push_back({std::max<std::int64_t>(first, 0), std::min(first + o.kernel, size)});
  }
  return axis;
}

// Areas that cover the axis; neighbors share an element where the sizes do not divide.
Axis CoveringWindows(std::int64_t size, std::int64_t outputs) {
  Axis axis;
  for (std::int64_t i = 0; i < outputs; ++i) {
    axis.windows.push_back({i * size / outputs, ((i + 1) * size + outputs - 1) / outputs});
  }
  return axis;
}

}  // namespace

std::unique_ptr<Module> MakeAveragePool(const MaxPoolOptions& o) {
  TROOP_CHECK(o.kernel > 0 && o.stride > 0 && o.padding >= 0 && 2 * o.padding <= o.kernel &&
                  o.kernel <= o.height + 2 * o.padding && o.kernel <= o.width + 2 * o.padding,
              "average_pool of {} x {}: kernel {}, stride {}, padding {}", o.height, o.width,
              o.kernel, o.stride, o.padding);
  const Shape out = o.out();
  return std::make_unique<AveragePoolLayer>(Shape{o.height, o.width, o.channels},
                                            FixedWindows(o.height, out[0], o),
                                            FixedWindows(o.width, out[1], o));
}

std::unique_ptr<Module> MakeAdaptiveAveragePool(const AdaptivePoolOptions& o) {
  TROOP_CHECK(o.height > 0 && o.width > 0 && o.out_height > 0 && o.out_width > 0,
              "adaptive average_pool of {} x {} to {} x {}", o.height, o.width, o.out_height,
              o.out_width);
  return std::make_unique<AveragePoolLayer>(Shape{o.height, o.width, o.channels},
                                            CoveringWindows(o.height, o.out_height),
                                            CoveringWindows(o.width, o.out_width));
}

}  // namespace troop
