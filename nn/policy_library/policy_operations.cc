// Implements the layers of policies; the arithmetic is stated in nn/export/policy_description.h.
#include "nn/policy_library/policy_operations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/policy_library/policy_chain.h"
#include "nn/policy_library/policy_image_operations.h"
#include "nn/policy_library/policy_recurrent_operations.h"
#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

// The constants of nn/layers/normalize_layer.cc.
constexpr double kVarianceFloor = 1e-8;
constexpr float kNormalizedMax = 10;
// kLayerNormEpsilon of nn/layers/layers.h.
constexpr double kLayerNormFloor = 1e-5;

// y = factor · x.
class Scale final : public PolicyOperation {
 public:
  explicit Scale(const PolicyLayerReader& layer)
      : size_(layer.in()), factor_(layer.Number("factor", 1)) {
    RequirePolicy(layer.out() == size_, "scale changes the shape");
  }
  // Elements are independent of each other, so one loop covers all rows.
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    ScaleToFloat(isa, in, rows * size_, factor_, out);
  }

 private:
  const std::int64_t size_;
  const float factor_;
};

// y = x, clipped to [low, high].
class Clip final : public PolicyOperation {
 public:
  explicit Clip(const PolicyLayerReader& layer)
      : size_(layer.in()), low_(layer.Number("low", 0)), high_(layer.Number("high", 0)) {
    RequirePolicy(layer.out() == size_, "clip changes the shape");
    RequirePolicy(low_ <= high_, "clip has a lower bound above its upper one");
  }
  // NaN stays NaN.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    for (std::int64_t i = 0; i < rows * size_; ++i) out[i] = std::clamp(in[i], low_, high_);
  }

 private:
  const std::int64_t size_;
  const float low_, high_;
};

// The statistics are folded into a mean and an inverse deviation.
class Normalize final : public PolicyOperation {
 public:
  explicit Normalize(const PolicyLayerReader& layer)
      : size_(layer.in()), mean_(layer.Tensor("mean", size_)), inverse_(std::size_t(size_), 1.0f) {
    RequirePolicy(layer.out() == size_, "normalize changes the shape");
    // A count of 0: no statistics yet.
    if (layer.Tensor("count", 1)[0] <= 0) return;
    const std::vector<float>& variance = layer.Tensor("variance", size_);
    std::transform(variance.begin(), variance.end(), inverse_.begin(), [](float v) {
      RequirePolicy(v >= 0, "a variance below 0");
      return float(1 / std::sqrt(double(v) + kVarianceFloor));
    });
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
  explicit OneHot(const PolicyLayerReader& layer)
      : size_(layer.in()), classes_(layer.Integer("classes")) {
    RequirePolicy(layer.out() == size_ * classes_, "one_hot has another output shape");
  }
  // The range is checked before the conversion, which is undefined outside of it.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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

// One product; its rows are observations.
class Linear final : public PolicyOperation {
 public:
  explicit Linear(const PolicyLayerReader& layer)
      : activation_(layer.Activation()), weights_(layer.Weights("", layer.out(), layer.in())) {}
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
  explicit LayerNorm(const PolicyLayerReader& layer)
      : activation_(layer.Activation()), size_(layer.in()) {
    RequirePolicy(layer.out() == size_ && !layer.in_shape().empty(),
                  "layer_norm changes the shape");
    const std::int64_t n = layer.in_shape().back();
    weight_ = layer.Tensor("weight", n), bias_ = layer.Tensor("bias", n);
  }
  // Two passes over each row: the mean, then the squared deviations from it.
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
        out[i] = PolicyActivated(activation_, weight_[at] * x + bias_[at]);
      }
    }
  }

 private:
  const PolicyActivation activation_;
  const std::int64_t size_;
  std::vector<float> weight_, bias_;
};

// Wang et al. 2016, eq. 9, for each of an action's outputs separately.
class Dueling final : public PolicyOperation {
 public:
  explicit Dueling(const PolicyLayerReader& layer)
      : numbers_(layer.IntegerOr("numbers", 1)),
        units_(layer.IntegerOr("units", 0)),
        in_(layer.in()),
        outputs_(layer.out()) {
    RequirePolicy(outputs_ % numbers_ == 0, "dueling has another output shape");
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

  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
  explicit CategoricalMean(const PolicyLayerReader& layer)
      : actions_(layer.out()),
        atoms_(layer.in() / actions_),
        low_(layer.Number("low", 0)),
        high_(layer.Number("high", 0)) {
    RequirePolicy(layer.in() % actions_ == 0 && atoms_ >= 2 && low_ < high_,
                  "categorical_mean needs atoms in order");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
  explicit QuantileMean(const PolicyLayerReader& layer)
      : actions_(layer.out()), quantiles_(layer.in() / actions_) {
    RequirePolicy(layer.in() % actions_ == 0, "quantile_mean has another output shape");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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
  explicit ActionBounds(const PolicyLayerReader& layer) : low_(layer.low()), high_(layer.high()) {
    RequirePolicy(layer.in() == layer.out() && layer.out() == std::int64_t(low_.size()),
                  "action_bounds needs one bound per element");
  }
  void Run(PolicyIsa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
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

// Computes branches one after another, each in the same two buffers, and copies their outputs.
class Parts final : public PolicyOperation {
 public:
  explicit Parts(const PolicyLayerReader& layer) : size_(layer.out()) {
    const auto branches = layer.layer().find("branches");
    RequirePolicy(branches != layer.layer().end() && branches->is_array() && !branches->empty() &&
                      branches->size() <= kBranchesMax,
                  "parts need a list of branches");
    std::int64_t features = 0;
    for (const nlohmann::json& branch : *branches) {
      RequirePolicy(branch.is_array() && !branch.empty() && branch.size() <= kBranchLayersMax,
                    "a branch of parts is not a list of layers");
      PolicyChain& chain = branches_.emplace_back(layer.in_shape());
      for (const nlohmann::json& next : branch) {
        // Without this a file could ask for any depth of the stack.
        RequirePolicy(next.is_object() && PolicyString(next, "kind") != "parts",
                      "parts within parts");
        chain.Add(next, layer.context());
      }
      RequirePolicy(chain.state() == 0, "a recurrent layer within parts");
      features += PolicyElements(chain.shape());
      width_ = std::max(width_, chain.width());
    }
    RequirePolicy(features == size_, "parts have another output shape");
  }
  std::int64_t scratch() const override { return 2 * width_; }

  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates&) const override {
    float* const first = out + rows * size_;
    for (const PolicyChain& branch : branches_) {
      const float* const from = branch.Run(isa, rows, in, {first, first + rows * width_}, {});
      const std::int64_t features = PolicyElements(branch.shape());
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(from + r * features, features, out + r * size_);
      // The next branch follows in each row.
      out += features;
    }
  }

 private:
  // Limits of what a file may ask for.
  static constexpr std::size_t kBranchesMax = 64, kBranchLayersMax = 1000;
  const std::int64_t size_;
  std::vector<PolicyChain> branches_;
  std::int64_t width_ = 0;  // of the widest branch
};

// Creates an operation of one class, for the table below.
template <class Operation>
std::unique_ptr<PolicyOperation> Make(const PolicyLayerReader& layer) {
  return std::make_unique<Operation>(layer);
}

}  // namespace

// The names are those of PolicyLayerKind. A file of a later version may have others, which are an
// error instead of being ignored.
std::unique_ptr<PolicyOperation> MakePolicyOperation(const PolicyLayerSource& source) {
  using Maker = std::unique_ptr<PolicyOperation> (*)(const PolicyLayerReader&);
  static const std::map<std::string, Maker> kMakers = {
      {"clip", Make<Clip>},
      {"scale", Make<Scale>},
      {"normalize", Make<Normalize>},
      {"one_hot", Make<OneHot>},
      {"linear", Make<Linear>},
      {"layer_norm", Make<LayerNorm>},
      {"parts", Make<Parts>},
      {"dueling", Make<Dueling>},
      {"categorical_mean", Make<CategoricalMean>},
      {"quantile_mean", Make<QuantileMean>},
      {"action_bounds", Make<ActionBounds<true>>},
      {"clipped_bounds", Make<ActionBounds<false>>},
  };
  const std::string kind = PolicyString(source.layer, "kind");
  const PolicyLayerReader reader(source);
  if (auto operation = MakePolicyImageOperation(kind, reader)) return operation;
  if (auto operation = MakePolicyRecurrentOperation(kind, reader)) return operation;
  const auto maker = kMakers.find(kind);
  if (maker == kMakers.end())
    throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                      "layer kind " + kind + " needs a later version of libtroop_policy");
  return maker->second(reader);
}

}  // namespace troop
