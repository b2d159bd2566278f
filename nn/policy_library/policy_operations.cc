// Implements the layers of policies; the arithmetic is stated in nn/export/policy_description.h.
#include "nn/policy_library/policy_operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kElementsMax = std::int64_t{1} << 26;
// The constants of nn/layers/normalize_layer.cc.
constexpr double kVarianceFloor = 1e-8;
constexpr float kNormalizedMax = 10;
// kLayerNormEpsilon of nn/layers/layers.h.
constexpr double kLayerNormFloor = 1e-5;

[[noreturn]] void Invalid(const std::string& what) {
  throw PolicyError(TROOP_POLICY_DATA_LOSS, "the description of the policy is invalid: " + what);
}
void Require(bool condition, const char* what) {
  if (!condition) Invalid(what);
}

// Reads a layer's members and tensors.
class LayerReader {
 public:
  explicit LayerReader(const PolicyLayerSource& source) : source_(source) {
    const auto prefix = source.layer.find("tensors");
    if (prefix != source.layer.end()) prefix_ = PolicyString(source.layer, "tensors") + ".";
  }

  std::int64_t in() const { return PolicyElements(source_.in); }
  std::int64_t out() const { return PolicyElements(source_.out); }
  std::int64_t Integer(const char* key, std::int64_t low = 1) const {
    return PolicyInteger(source_.layer, key, low, kElementsMax);
  }
  std::int64_t IntegerOr(const char* key, std::int64_t otherwise) const {
    return source_.layer.contains(key) ? Integer(key) : otherwise;
  }
  float Number(const char* key, double otherwise) const {
    return float(PolicyNumber(source_.layer, key, otherwise));
  }
  PolicyActivation Activation() const {
    if (!source_.layer.contains("activation")) return PolicyActivation::kNone;
    const std::string name = PolicyString(source_.layer, "activation");
    if (name == "relu") return PolicyActivation::kRelu;
    if (name == "tanh") return PolicyActivation::kTanh;
    throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                      "activation " + name + " needs a later version of libtroop_policy");
  }
  // The values of a tensor with this number of elements.
  const std::vector<float>& Tensor(const std::string& name, std::int64_t elements) const {
    const auto found = source_.file.tensors.find(prefix_ + name);
    if (found == source_.file.tensors.end()) Invalid("no tensor " + prefix_ + name);
    if (std::int64_t(found->second.values.size()) != elements)
      Invalid("tensor " + prefix_ + name + " has " + std::to_string(found->second.values.size()) +
              " values, but the layer needs " + std::to_string(elements));
    return found->second.values;
  }
  PackedWeights Weights(const std::string& name, std::int64_t columns, std::int64_t depth) const {
    return {Tensor(name + "weight", columns * depth).data(), Tensor(name + "bias", columns).data(),
            columns, depth};
  }
  const std::vector<std::int64_t>& in_shape() const { return source_.in; }
  const std::vector<std::int64_t>& out_shape() const { return source_.out; }
  const std::vector<float>& low() const { return source_.low; }
  const std::vector<float>& high() const { return source_.high; }

 private:
  const PolicyLayerSource& source_;
  std::string prefix_;
};

// y = factor · x.
class Scale final : public PolicyOperation {
 public:
  explicit Scale(const LayerReader& layer) : size_(layer.in()), factor_(layer.Number("factor", 1)) {
    Require(layer.out() == size_, "scale changes the shape");
  }
  // Elements are independent of each other, so one loop covers all rows.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out) const override {
    ScaleToFloat(isa, in, rows * size_, factor_, out);
  }

 private:
  const std::int64_t size_;
  const float factor_;
};

// y = x, clipped to [low, high].
class Clip final : public PolicyOperation {
 public:
  explicit Clip(const LayerReader& layer)
      : size_(layer.in()), low_(layer.Number("low", 0)), high_(layer.Number("high", 0)) {
    Require(layer.out() == size_, "clip changes the shape");
    Require(low_ <= high_, "clip has a lower bound above its upper one");
  }
  // NaN stays NaN.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    for (std::int64_t i = 0; i < rows * size_; ++i) out[i] = std::clamp(in[i], low_, high_);
  }

 private:
  const std::int64_t size_;
  const float low_, high_;
};

// The statistics are folded into a mean and an inverse deviation.
class Normalize final : public PolicyOperation {
 public:
  explicit Normalize(const LayerReader& layer)
      : size_(layer.in()), mean_(layer.Tensor("mean", size_)), inverse_(std::size_t(size_), 1.0f) {
    Require(layer.out() == size_, "normalize changes the shape");
    // A count of 0: no statistics yet.
    if (layer.Tensor("count", 1)[0] <= 0) return;
    const std::vector<float>& variance = layer.Tensor("variance", size_);
    std::transform(variance.begin(), variance.end(), inverse_.begin(), [](float v) {
      Require(v >= 0, "a variance below 0");
      return float(1 / std::sqrt(double(v) + kVarianceFloor));
    });
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    for (std::int64_t r = 0; r < rows; ++r, in += size_, out += size_) {
      for (std::int64_t i = 0; i < size_; ++i) {
        const float x = (in[i] - mean_[std::size_t(i)]) * inverse_[std::size_t(i)];
        out[i] = std::clamp(x, -kNormalizedMax, kNormalizedMax);
      }
    }
  }

 private:
  const std::int64_t size_;
  const std::vector<float> mean_;
  std::vector<float> inverse_;
};

// Zeros for values that are no class.
class OneHot final : public PolicyOperation {
 public:
  explicit OneHot(const LayerReader& layer)
      : size_(layer.in()), classes_(layer.Integer("classes")) {
    Require(layer.out() == size_ * classes_, "one_hot has another output shape");
  }
  // The range is checked before the conversion, which is undefined outside of it.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    std::fill_n(out, rows * size_ * classes_, 0.0f);
    for (std::int64_t i = 0; i < rows * size_; ++i) {
      const float x = in[i];
      const bool valid = x >= 0 && x < float(classes_) && x == std::floor(x);
      if (valid) out[i * classes_ + std::int64_t(x)] = 1;
    }
  }

 private:
  const std::int64_t size_, classes_;
};

// Moves the frames of a stack to the channels, the oldest first.
class Images final : public PolicyOperation {
 public:
  explicit Images(const LayerReader& layer)
      : stack_(layer.IntegerOr("stack", 1)), factor_(layer.Number("factor", 1)) {
    const auto& out = layer.out_shape();
    Require(out.size() == 3 && layer.in() == layer.out() && out[2] % stack_ == 0,
            "images need [height, width, channels]");
    pixels_ = out[0] * out[1];
    channels_ = out[2] / stack_;
  }
  // Pixel by pixel of each frame: reads are contiguous, writes have a step of all channels.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out) const override {
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

// Layout NHWC, without padding.
class Conv2d final : public PolicyOperation {
 public:
  explicit Conv2d(const LayerReader& layer)
      : kernel_(layer.Integer("kernel")),
        stride_(layer.Integer("stride")),
        activation_(layer.Activation()) {
    const auto &in = layer.in_shape(), &out = layer.out_shape();
    Require(in.size() == 3 && out.size() == 3, "conv2d needs [height, width, channels]");
    height_ = in[0], width_ = in[1], channels_ = in[2];
    Require(kernel_ <= height_ && kernel_ <= width_, "a conv2d kernel exceeds its input");
    rows_ = (height_ - kernel_) / stride_ + 1;
    columns_ = (width_ - kernel_) / stride_ + 1;
    Require(out[0] == rows_ && out[1] == columns_, "conv2d has another output shape");
    filters_ = out[2];
    weights_ = layer.Weights("", filters_, kernel_ * kernel_ * channels_);
    for (std::int64_t y = 0; y < rows_; ++y) {
      for (std::int64_t x = 0; x < columns_; ++x)
        offsets_.push_back((y * width_ + x) * stride_ * channels_);
    }
  }
  // One product per image: the pixels of its output are the rows of the product.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out) const override {
    PolicyProduct product{.weights = &weights_,
                          .activation = activation_,
                          .rows = rows_ * columns_,
                          .row_offsets = offsets_.data(),
                          .segments = kernel_,
                          .segment_step = width_ * channels_,
                          .length = kernel_ * channels_};
    for (std::int64_t r = 0; r < rows; ++r) {
      product.in = in + r * height_ * width_ * channels_;
      product.out = out + r * product.rows * filters_;
      Multiply(isa, product);
    }
  }

 private:
  const std::int64_t kernel_, stride_;
  const PolicyActivation activation_;
  std::int64_t height_ = 0, width_ = 0, channels_ = 0, rows_ = 0, columns_ = 0, filters_ = 0;
  PackedWeights weights_;
  std::vector<std::int64_t> offsets_;  // of each output pixel's first input
};

// One product; its rows are observations.
class Linear final : public PolicyOperation {
 public:
  explicit Linear(const LayerReader& layer)
      : activation_(layer.Activation()), weights_(layer.Weights("", layer.out(), layer.in())) {}
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out) const override {
    Multiply(isa, {.weights = &weights_,
                   .activation = activation_,
                   .rows = rows,
                   .row_step = weights_.depth,
                   .length = weights_.depth,
                   .in = in,
                   .out = out});
  }

 private:
  const PolicyActivation activation_;
  const PackedWeights weights_;
};

// Ba et al. 2016, over the last axis.
class LayerNorm final : public PolicyOperation {
 public:
  explicit LayerNorm(const LayerReader& layer)
      : activation_(layer.Activation()), size_(layer.in()) {
    Require(layer.out() == size_ && !layer.in_shape().empty(), "layer_norm changes the shape");
    const std::int64_t n = layer.in_shape().back();
    weight_ = layer.Tensor("weight", n), bias_ = layer.Tensor("bias", n);
  }
  // Two passes over each row: the mean, then the squared deviations from it.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    const auto n = std::int64_t(weight_.size());
    for (std::int64_t r = 0; r < rows * size_; r += n, in += n, out += n) {
      double sum = 0, squares = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += double(in[i]);
      const double mean = sum / double(n);
      for (std::int64_t i = 0; i < n; ++i)
        squares += (double(in[i]) - mean) * (double(in[i]) - mean);
      const double inverse = 1 / std::sqrt(squares / double(n) + kLayerNormFloor);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = std::size_t(i);
        const auto x = float((double(in[i]) - mean) * inverse);
        out[i] = Activated(weight_[at] * x + bias_[at]);
      }
    }
  }

 private:
  // NaN stays NaN.
  float Activated(float x) const {
    if (activation_ == PolicyActivation::kRelu) return x < 0 ? 0 : x;
    return activation_ == PolicyActivation::kTanh ? PolicyTanh(x) : x;
  }

  const PolicyActivation activation_;
  const std::int64_t size_;
  std::vector<float> weight_, bias_;
};

// Wang et al. 2016, eq. 9, for each of an action's outputs separately.
class Dueling final : public PolicyOperation {
 public:
  explicit Dueling(const LayerReader& layer)
      : numbers_(layer.IntegerOr("numbers", 1)),
        units_(layer.IntegerOr("units", 0)),
        in_(layer.in()),
        outputs_(layer.out()) {
    Require(outputs_ % numbers_ == 0, "dueling has another output shape");
    if (units_ > 0) {
      value_hidden_ = layer.Weights("value.hidden.", units_, in_);
      advantage_hidden_ = layer.Weights("advantage.hidden.", units_, in_);
    }
    const std::int64_t features = units_ > 0 ? units_ : in_;
    value_ = layer.Weights("value.", numbers_, features);
    advantage_ = layer.Weights("advantage.", outputs_, features);
  }
  // The hidden units of one stream at a time, and the values.
  std::int64_t scratch() const override { return units_ + numbers_; }

  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out) const override {
    float* const hidden = out + rows * outputs_;
    float* const value = hidden + rows * units_;
    Stream(isa, {rows, in, hidden, value}, value_hidden_, value_);
    Stream(isa, {rows, in, hidden, out}, advantage_hidden_, advantage_);
    // Each of the K outputs is combined over the actions separately.
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const q = out + r * outputs_;
      for (std::int64_t k = 0; k < numbers_; ++k) {
        float sum = 0;
        for (std::int64_t i = k; i < outputs_; i += numbers_) sum += q[i];
        const float base = value[r * numbers_ + k] - sum / float(outputs_ / numbers_);
        for (std::int64_t i = k; i < outputs_; i += numbers_) q[i] += base;
      }
    }
  }

 private:
  struct Buffers {
    std::int64_t rows;
    const float* in;
    float *hidden, *out;
  };
  // One stream: the hidden layer if there is one, then the output layer.
  void Stream(PolicyIsa isa, const Buffers& at, const PackedWeights& hidden,
              const PackedWeights& last) const {
    const auto multiply = [&](const PackedWeights& weights, PolicyActivation activation,
                              const float* in, float* out) {
      Multiply(isa, {.weights = &weights,
                     .activation = activation,
                     .rows = at.rows,
                     .row_step = weights.depth,
                     .length = weights.depth,
                     .in = in,
                     .out = out});
    };
    if (units_ > 0) multiply(hidden, PolicyActivation::kRelu, at.in, at.hidden);
    multiply(last, PolicyActivation::kNone, units_ > 0 ? at.hidden : at.in, at.out);
  }

  const std::int64_t numbers_, units_, in_, outputs_;
  PackedWeights value_hidden_, advantage_hidden_, value_, advantage_;
};

// Bellemare et al. 2017: the mean of a categorical distribution over atoms, given as logits.
class CategoricalMean final : public PolicyOperation {
 public:
  explicit CategoricalMean(const LayerReader& layer)
      : actions_(layer.out()),
        atoms_(layer.in() / actions_),
        low_(layer.Number("low", 0)),
        high_(layer.Number("high", 0)) {
    Require(layer.in() % actions_ == 0 && atoms_ >= 2 && low_ < high_,
            "categorical_mean needs atoms in order");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    // Sums are f64: atoms may be far from 0 while their mean is near it.
    const double step = (double(high_) - double(low_)) / double(atoms_ - 1);
    for (std::int64_t i = 0; i < rows * actions_; ++i, in += atoms_) {
      // The largest logit is subtracted, so that no exponential overflows.
      const float largest = *std::max_element(in, in + atoms_);
      double sum = 0, weighted = 0;
      for (std::int64_t a = 0; a < atoms_; ++a) {
        const double e = std::exp(double(in[a]) - double(largest));
        sum += e;
        weighted += e * (double(low_) + double(a) * step);
      }
      out[i] = float(weighted / sum);
    }
  }

 private:
  const std::int64_t actions_, atoms_;
  const float low_, high_;
};

// Dabney et al. 2017: the mean of the quantiles.
class QuantileMean final : public PolicyOperation {
 public:
  explicit QuantileMean(const LayerReader& layer)
      : actions_(layer.out()), quantiles_(layer.in() / actions_) {
    Require(layer.in() % actions_ == 0, "quantile_mean has another output shape");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    for (std::int64_t i = 0; i < rows * actions_; ++i, in += quantiles_) {
      double sum = 0;
      for (std::int64_t k = 0; k < quantiles_; ++k) sum += double(in[k]);
      out[i] = float(sum / double(quantiles_));
    }
  }

 private:
  const std::int64_t actions_, quantiles_;
};

// Maps each element into its bounds by a tanh or by clipping; rounding must not leave them.
template <bool kTanh>
class ActionBounds final : public PolicyOperation {
 public:
  explicit ActionBounds(const LayerReader& layer) : low_(layer.low()), high_(layer.high()) {
    Require(layer.in() == layer.out() && layer.out() == std::int64_t(low_.size()),
            "action_bounds needs one bound per element");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out) const override {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < low_.size(); ++i) {
        const float x = *in++;
        const float share = (1 + (kTanh ? PolicyTanh(x) : std::clamp(x, -1.0F, 1.0F))) / 2;
        *out++ = std::clamp(low_[i] + (high_[i] - low_[i]) * share, low_[i], high_[i]);
      }
    }
  }

 private:
  const std::vector<float> low_, high_;
};

// Creates an operation of one class, for the table below.
template <class Operation>
std::unique_ptr<PolicyOperation> Make(const LayerReader& layer) {
  return std::make_unique<Operation>(layer);
}

}  // namespace

// Later versions may add members, so unknown ones are ignored.
std::int64_t PolicyInteger(const Json& object, const char* key, std::int64_t low,
                           std::int64_t high) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer())
    Invalid(std::string(key) + " is missing or no integer");
  const auto value = found->get<std::int64_t>();
  if (value < low || value > high)
    Invalid(std::string(key) + " is " + std::to_string(value) + ", must be from " +
            std::to_string(low) + " to " + std::to_string(high));
  return value;
}

// A double that overflows f32 is as invalid as infinity itself.
double PolicyNumber(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_number()) Invalid(std::string(key) + " is not a number");
  const auto value = found->get<double>();
  if (!std::isfinite(float(value))) Invalid(std::string(key) + " is not finite");
  return value;
}

// Names and kinds; their content is checked where it is used.
std::string PolicyString(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string())
    Invalid(std::string(key) + " is missing or no string");
  return found->get<std::string>();
}

// Every dimension is bounded before the product is computed, which therefore cannot overflow.
std::vector<std::int64_t> PolicyShape(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() > TROOP_POLICY_RANK_MAX)
    Invalid(std::string(key) + " is missing or no shape");
  std::vector<std::int64_t> shape;
  for (const Json& dim : *found) {
    if (!dim.is_number_integer() || dim.get<std::int64_t>() < 1 ||
        dim.get<std::int64_t>() > kElementsMax)
      Invalid(std::string(key) + " has an invalid dimension");
    shape.push_back(dim.get<std::int64_t>());
  }
  PolicyElements(shape);
  return shape;
}

// The bound keeps a small file from asking for gigabytes of buffers.
std::int64_t PolicyElements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) {
    elements *= dim;
    if (elements > kElementsMax) Invalid("a shape of more than 2^26 elements");
  }
  return elements;
}

// The names are those of PolicyLayerKind. A file of a later version may have others, which are an
// error instead of being ignored.
std::unique_ptr<PolicyOperation> MakePolicyOperation(const PolicyLayerSource& source) {
  using Maker = std::unique_ptr<PolicyOperation> (*)(const LayerReader&);
  static const std::map<std::string, Maker> kMakers = {
      {"clip", Make<Clip>},
      {"scale", Make<Scale>},
      {"normalize", Make<Normalize>},
      {"one_hot", Make<OneHot>},
      {"images", Make<Images>},
      {"conv2d", Make<Conv2d>},
      {"linear", Make<Linear>},
      {"layer_norm", Make<LayerNorm>},
      {"dueling", Make<Dueling>},
      {"categorical_mean", Make<CategoricalMean>},
      {"quantile_mean", Make<QuantileMean>},
      {"action_bounds", Make<ActionBounds<true>>},
      {"clipped_bounds", Make<ActionBounds<false>>},
  };
  const std::string kind = PolicyString(source.layer, "kind");
  const auto maker = kMakers.find(kind);
  if (maker == kMakers.end())
    throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                      "layer kind " + kind + " needs a later version of libtroop_policy");
  return maker->second(LayerReader(source));
}

}  // namespace troop
