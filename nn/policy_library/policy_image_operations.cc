// Implements the layers of policies that take images, [height, width, channels] in rows of pixels.
#include "nn/policy_library/policy_image_operations.h"

#include <algorithm>
#include <string>
#include <vector>

namespace troop {
namespace {

// Moves the frames of a stack to the channels, the oldest first.
class Images final : public PolicyOperation {
 public:
  explicit Images(const PolicyLayerReader& layer)
      : stack_(layer.IntegerOr("stack", 1)), factor_(layer.Number("factor", 1)) {
    const auto& out = layer.out_shape();
    RequirePolicy(out.size() == 3 && layer.in() == layer.out() && out[2] % stack_ == 0,
                  "images need [height, width, channels]");
    pixels_ = out[0] * out[1];
    channels_ = out[2] / stack_;
  }
  // Pixel by pixel of each frame: reads are contiguous, writes have a step of all channels.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    const std::int64_t all = stack_ * channels_;
    if (stack_ == 1) return ScaleToFloat(isa, in, rows * pixels_ * all, factor_, out);
    for (std::int64_t r = 0; r < rows; ++r, out += pixels_ * all) {
      for (std::int64_t s = 0; s < stack_; ++s, in += pixels_ * channels_) {
        float* const to = out + s * channels_;
        for (std::int64_t p = 0; p < pixels_; ++p) {
          for (std::int64_t c = 0; c < channels_; ++c)
            to[p * all + c] = factor_ * in[p * channels_ + c];
        }
      }
    }
  }

 private:
  const std::int64_t stack_;
  const float factor_;
  std::int64_t pixels_ = 0, channels_ = 0;
};

// Selects a part of each frame. The channels of its frames alternate in the output; a vector is an
// image of one pixel.
class Part final : public PolicyOperation {
 public:
  explicit Part(const PolicyLayerReader& layer)
      : stack_(layer.IntegerOr("stack", 1)),
        first_(layer.Integer("first", 0)),
        factor_(layer.Number("factor", 1)),
        size_(layer.out()) {
    const auto &in = layer.in_shape(), &out = layer.out_shape();
    const bool stacked = stack_ > 1;
    RequirePolicy(in.size() == (stacked ? 2 : 1) && (!stacked || in[0] == stack_),
                  "a part needs [elements], or [stack, elements]");
    width_ = in.back();
    RequirePolicy(out.size() == 1 || out.size() == 3, "a part is neither an image nor a vector");
    pixels_ = out.size() == 3 ? out[0] * out[1] : 1;
    RequirePolicy(out.back() % stack_ == 0, "a part has another output shape");
    channels_ = out.back() / stack_;
    RequirePolicy(first_ + pixels_ * channels_ <= width_, "a part exceeds its observation");
  }
  // Reads are contiguous, as those of Images.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    for (std::int64_t r = 0; r < rows; ++r, out += size_) {
      for (std::int64_t s = 0; s < stack_; ++s, in += width_) {
        for (std::int64_t i = 0; i < pixels_ * channels_; ++i) {
          const std::int64_t pixel = i / channels_, channel = i % channels_;
          out[(pixel * stack_ + s) * channels_ + channel] = factor_ * in[first_ + i];
        }
      }
    }
  }

 private:
  const std::int64_t stack_, first_;
  const float factor_;
  const std::int64_t size_;
  std::int64_t width_ = 0, pixels_ = 0, channels_ = 0;
};

// Sizes of an image, [height, width, channels].
struct ImageSize {
  explicit ImageSize(const std::vector<std::int64_t>& shape, const char* what) {
    RequirePolicy(shape.size() == 3, what);
    height = shape[0], width = shape[1], channels = shape[2];
  }
  // Zeros around it. Throws beyond 2^26 elements.
  ImageSize Padded(std::int64_t padding) const {
    const std::vector<std::int64_t> shape{height + 2 * padding, width + 2 * padding, channels};
    PolicyElements(shape);
    return ImageSize(shape, "");
  }
  std::int64_t row() const { return width * channels; }
  std::int64_t elements() const { return height * row(); }
  bool operator==(const ImageSize&) const = default;

  std::int64_t height = 0, width = 0, channels = 0;
};

// One product per image without padding: the pixels of its output are the rows of the product.
class Convolution {
 public:
  Convolution(const ImageSize& in, std::int64_t kernel, std::int64_t stride)
      : in_(in), kernel_(kernel) {
    RequirePolicy(kernel <= in.height && kernel <= in.width, "a conv2d kernel exceeds its input");
    rows_ = (in.height - kernel) / stride + 1;
    columns_ = (in.width - kernel) / stride + 1;
    for (std::int64_t y = 0; y < rows_; ++y) {
      for (std::int64_t x = 0; x < columns_; ++x)
        offsets_.push_back((y * in.width + x) * stride * in.channels);
    }
  }
  // Parameters of `filters` outputs per pixel.
  void Take(const PolicyLayerReader& layer, const std::string& name, std::int64_t filters) {
    weights_ = layer.Weights(name, filters, kernel_ * kernel_ * in_.channels);
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  void Run(PolicyIsa isa, PolicyActivation activation, const float* in, float* out) const {
    Multiply(isa, {.weights = &weights_,
                   .activation = activation,
                   .rows = rows_ * columns_,
                   .row_offsets = offsets_.data(),
                   .segments = kernel_,
                   .segment_step = in_.row(),
                   .length = kernel_ * in_.channels,
                   .in = in,
                   .out = out});
  }

 private:
  const ImageSize in_;
  const std::int64_t kernel_;
  std::int64_t rows_ = 0, columns_ = 0;
  PackedWeights weights_;
  std::vector<std::int64_t> offsets_;  // of each output pixel's first input
};

// Layout NHWC, without padding.
class Conv2d final : public PolicyOperation {
 public:
  explicit Conv2d(const PolicyLayerReader& layer)
      : activation_(layer.Activation()),
        in_(layer.in_shape(), "conv2d needs [height, width, channels]"),
        out_(layer.out_shape(), "conv2d needs [height, width, channels]"),
        convolution_(in_, layer.Integer("kernel"), layer.Integer("stride")) {
    RequirePolicy(out_.height == convolution_.rows() && out_.width == convolution_.columns(),
                  "conv2d has another output shape");
    convolution_.Take(layer, "", out_.channels);
  }
  // Images are computed one after another, each with all its pixels at once.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    for (std::int64_t r = 0; r < rows; ++r, in += in_.elements(), out += out_.elements())
      convolution_.Run(isa, activation_, in, out);
  }

 private:
  const PolicyActivation activation_;
  const ImageSize in_, out_;
  Convolution convolution_;
};

// Writes an image into the middle of zeros. kRelu: also replaces its negative elements by zeros.
template <bool kRelu>
void Pad(const ImageSize& size, const ImageSize& outer, const float* in, float* out) {
  std::fill_n(out, outer.elements(), 0.0f);
  out += (outer.height - size.height) / 2 * (outer.row() + size.channels);
  for (std::int64_t y = 0; y < size.height; ++y, in += size.row(), out += outer.row()) {
    // NaN passes through relu: it must reach the final check.
    std::transform(in, in + size.row(), out, [](float x) { return kRelu && x < 0 ? 0 : x; });
  }
}

// Zeros around an image.
class Padding final : public PolicyOperation {
 public:
  explicit Padding(const PolicyLayerReader& layer)
      : in_(layer.in_shape(), "padding needs [height, width, channels]"),
        out_(layer.out_shape(), "padding needs [height, width, channels]") {
    RequirePolicy(in_.Padded(layer.Integer("padding")) == out_, "padding has another output shape");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    for (std::int64_t r = 0; r < rows; ++r, in += in_.elements(), out += out_.elements())
      Pad<false>(in_, out_, in, out);
  }

 private:
  const ImageSize in_, out_;
};

// Largest elements of windows, of which each has a part within the image.
class MaxPool final : public PolicyOperation {
 public:
  explicit MaxPool(const PolicyLayerReader& layer)
      : in_(layer.in_shape(), "max_pool needs [height, width, channels]"),
        out_(layer.out_shape(), "max_pool needs [height, width, channels]"),
        kernel_(layer.Integer("kernel")),
        stride_(layer.Integer("stride")),
        padding_(layer.IntegerOr("padding", 0)) {
    const auto pooled = [&](std::int64_t size) {
      RequirePolicy(2 * padding_ <= kernel_ && kernel_ <= size + 2 * padding_,
                    "a max_pool kernel exceeds its input, or padding exceeds half of it");
      return (size + 2 * padding_ - kernel_) / stride_ + 1;
    };
    RequirePolicy(out_.height == pooled(in_.height) && out_.width == pooled(in_.width) &&
                      out_.channels == in_.channels,
                  "max_pool has another output shape");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    for (std::int64_t r = 0; r < rows; ++r, in += in_.elements()) {
      for (std::int64_t y = 0; y < out_.height; ++y) {
        for (std::int64_t x = 0; x < out_.width; ++x, out += in_.channels) Window(in, {y, x}, out);
      }
    }
  }

 private:
  struct Place {
    std::int64_t y, x;
  };
  // All channels of one output pixel.
  void Window(const float* image, Place place, float* out) const {
    const std::int64_t top = place.y * stride_ - padding_, left = place.x * stride_ - padding_;
    const std::int64_t y0 = std::max<std::int64_t>(top, 0);
    const std::int64_t x0 = std::max<std::int64_t>(left, 0);
    const std::int64_t y1 = std::min(top + kernel_, in_.height);
    const std::int64_t x1 = std::min(left + kernel_, in_.width);
    // The first pixel of the window that exists; zeros would win over negative elements.
    std::copy_n(image + y0 * in_.row() + x0 * in_.channels, in_.channels, out);
    for (std::int64_t y = y0; y < y1; ++y) {
      for (std::int64_t x = x0; x < x1; ++x) {
        const float* const pixel = image + y * in_.row() + x * in_.channels;
        for (std::int64_t c = 0; c < in_.channels; ++c) {
          // NaN replaces a number, and nothing replaces NaN.
          const bool keeps = out[c] != out[c] || pixel[c] <= out[c];
          if (!keeps) out[c] = pixel[c];
        }
      }
    }
  }

  const ImageSize in_, out_;
  const std::int64_t kernel_, stride_, padding_;
};

// Espeholt et al. 2018, figure 3: two convolutions that keep the shape, whose output is added to
// their input.
class Residual final : public PolicyOperation {
 public:
  explicit Residual(const PolicyLayerReader& layer)
      : activation_(layer.Activation()),
        size_(layer.in_shape(), "residual needs [height, width, channels]"),
        padded_(size_.Padded(layer.Integer("kernel") / 2)),
        first_(padded_, layer.Integer("kernel"), 1),
        second_(padded_, layer.Integer("kernel"), 1) {
    RequirePolicy(layer.Integer("kernel") % 2 == 1, "residual needs an odd kernel");
    RequirePolicy(layer.out_shape() == layer.in_shape(), "residual changes the shape");
    first_.Take(layer, "conv0.", size_.channels);
    second_.Take(layer, "conv1.", size_.channels);
  }
  // One image with the zeros around it.
  std::int64_t scratch() const override { return padded_.elements(); }

  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    const std::int64_t n = size_.elements();
    float* const padded = out + rows * n;
    for (std::int64_t r = 0; r < rows; ++r, in += n, out += n) {
      // Both convolutions read the same padded buffer, one after the other.
      Pad<true>(size_, padded_, in, padded);
      first_.Run(isa, PolicyActivation::kRelu, padded, out);
      Pad<false>(size_, padded_, out, padded);
      second_.Run(isa, PolicyActivation::kNone, padded, out);
      for (std::int64_t i = 0; i < n; ++i) out[i] = PolicyActivated(activation_, in[i] + out[i]);
    }
  }

 private:
  const PolicyActivation activation_;
  const ImageSize size_, padded_;
  Convolution first_, second_;
};

}  // namespace

// The names are those of PolicyLayerKind.
std::unique_ptr<PolicyOperation> MakePolicyImageOperation(const std::string& kind,
                                                          const PolicyLayerReader& layer) {
  if (kind == "images") return std::make_unique<Images>(layer);
  if (kind == "conv2d") return std::make_unique<Conv2d>(layer);
  if (kind == "padding") return std::make_unique<Padding>(layer);
  if (kind == "max_pool") return std::make_unique<MaxPool>(layer);
  if (kind == "residual") return std::make_unique<Residual>(layer);
  if (kind == "part") return std::make_unique<Part>(layer);
  return nullptr;
}

}  // namespace troop
