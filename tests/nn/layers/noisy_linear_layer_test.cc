// Noisy linear layers, against plain loops in f64 over the weights with their noise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "kernels/elementwise/cast.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "tests/nn/f64_reference.h"
#include "tests/nn/noisy_reference.h"

namespace troop {
namespace {

using test::Row;
using test::Values;

constexpr NoiseKey kKey{.seed = 0x1234567890abcdef, .draw = 3};
constexpr std::uint64_t kPlace = 7;

// A layer with drawn parameters and inputs.
class Layer {
 public:
  Layer(NoisyLinearOptions options, std::int64_t batch, Precision precision = Precision::kF32)
      : options_(options),
        batch_(batch),
        module_(MakeNoisyLinear(options)),
        dtype_(precision == Precision::kBF16 ? DType::kBF16 : DType::kF32),
        packed_(module_->MakePacked(precision)) {
    value_.resize(std::size_t(ParameterCount(*module_)));
    InitParameters(*module_, 7, value_);
    Rng rng({3, Purpose::kTest});
    // Deviations that differ from each other, of either sign.
    for (float& x : value_) x += float(0.1 * rng.Normal());
    rows_ = Tensor(DType::kF32, {batch, options.in});
    for (float& x : rows_.as<float>()) x = float(rng.Normal());
    plan_ = *module_->MakePlan({{rows_.spec()}});
    workspace_ = MutableBuffer::Zeros(plan_.workspace_bytes);
    cache_ = MutableBuffer::Zeros(plan_.cache_bytes);
    module_->Pack(value_, packed_.get());
  }
  const Module& module() const { return *module_; }
  std::span<const float> value() const { return value_; }
  std::vector<double> doubles() const { return {value_.begin(), value_.end()}; }
  Row row(std::int64_t b) const {
    const auto row = rows_.Rows(b, 1).as<float>();
    return {row.begin(), row.end()};
  }

  std::vector<float> Forward(std::optional<NoiseKey> noise, bool keep = true) {
    const Tensor out(DType::kF32, plan_.out[0].shape);
    const Tensor x = Converted(rows_);
    const ConstTensor in(x);
    module_->Forward(
        {.value = value_, .packed = packed_.get(), .workspace = workspace_.bytes(), .noise = noise},
        {&in, 1}, {&out, 1}, keep ? cache_.bytes() : Cache());
    return {out.as<float>().begin(), out.as<float>().end()};
  }
  // Adds to or replaces `gradient`; din: [batch, in].
  void Backward(std::optional<NoiseKey> noise, bool accumulate, std::vector<float>* gradient,
                std::vector<float>* din) {
    const Tensor dout(DType::kF32, plan_.out[0].shape), dx(DType::kF32, rows_.shape());
    for (std::size_t i = 0; i < dout.as<float>().size(); ++i)
      dout.as<float>()[i] = test::LossWeight(i);
    const Tensor x = Converted(rows_);
    const ConstTensor in(x), dy(dout);
    module_->Backward({.value = value_,
                       .packed = packed_.get(),
                       .gradient = *gradient,
                       .workspace = workspace_.bytes(),
                       .accumulate = accumulate,
                       .noise = noise},
                      {&in, 1}, {&dy, 1}, cache_.bytes(), {&dx, 1});
    din->assign(dx.as<float>().begin(), dx.as<float>().end());
  }

  // Output row b for parameters that may have noise.
  Row Reference(std::span<const double> value, std::int64_t b) const {
    Row y = test::Product(Values(*module_, value), "weight", "bias", row(b));
    for (double& v : y) {
      if (options_.activation == Activation::kRelu) v = std::max(v, 0.0);
      if (options_.activation == Activation::kTanh) v = std::tanh(v);
    }
    return y;
  }
  double Loss(std::span<const double> value) const {
    double sum = 0;
    for (std::int64_t b = 0; b < batch_; ++b) {
      const Row y = Reference(value, b);
      for (std::size_t o = 0; o < y.size(); ++o)
        sum += double(test::LossWeight(std::size_t(b) * y.size() + o)) * y[o];
    }
    return sum;
  }
  // Gradient of that loss with respect to the input.
  std::vector<double> InputGradient(std::span<const double> value) const {
    const Values values(*module_, value);
    std::vector<double> din;
    for (std::int64_t b = 0; b < batch_; ++b) {
      const Row y = Reference(value, b);
      for (std::size_t i = 0; i < std::size_t(options_.in); ++i) {
        double sum = 0;
        for (std::size_t o = 0; o < y.size(); ++o) {
          const double slope = options_.activation == Activation::kRelu   ? y[o] > 0
                               : options_.activation == Activation::kTanh ? 1 - y[o] * y[o]
                                                                          : 1;
          sum += double(test::LossWeight(std::size_t(b) * y.size() + o)) * slope *
                 values["weight"][o * std::size_t(options_.in) + i];
        }
        din.push_back(sum);
      }
    }
    return din;
  }
  std::vector<double> Noisy(std::span<const double> value, const NoiseKey& key) const {
    return test::WithNoise(*module_, {{"", options_.place}}, key, value);
  }

 private:
  Tensor Converted(const Tensor& from) const {
    if (dtype_ == DType::kF32) return from;
    Tensor to(dtype_, from.shape());
    ConvertScaled({.n = from.elements(),
                   .x = from.bytes().data(),
                   .y = to.bytes().data(),
                   .y_dtype = dtype_});
    return to;
  }

  const NoisyLinearOptions options_;
  const std::int64_t batch_;
  const std::unique_ptr<Module> module_;
  const DType dtype_;
  const std::unique_ptr<Packed> packed_;
  std::vector<float> value_;
  Tensor rows_;
  Plan plan_;
  MutableBuffer workspace_, cache_;
};

TEST(NoisyLinearTest, OutputsAndGradientsEqualLoops) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
    SCOPED_TRACE(EnumName(activation));
    Layer layer({.in = 5, .units = 19, .activation = activation, .place = kPlace}, 6);
    const std::vector<double> noisy = layer.Noisy(layer.doubles(), kKey);
    for (const bool keep : {false, true}) {
      const std::vector<float> out = layer.Forward(kKey, keep);
      for (std::int64_t b = 0; b < 6; ++b) {
        const Row want = layer.Reference(noisy, b);
        for (std::size_t o = 0; o < 19; ++o)
          EXPECT_NEAR(out[std::size_t(b) * 19 + o], want[o], 1e-5) << b << ", " << o;
      }
    }
    std::vector<float> gradient(layer.value().size(), 5), din;
    layer.Backward(kKey, false, &gradient, &din);
    test::ExpectSlopes(
        layer.module(), layer.value(), gradient,
        [&](std::span<const double> at) { return layer.Loss(layer.Noisy(at, kKey)); }, 1e-4);
    const std::vector<double> want_din = layer.InputGradient(noisy);
    for (std::size_t i = 0; i < din.size(); ++i) EXPECT_NEAR(din[i], want_din[i], 1e-5) << i;
    // A second pass adds the same.
    std::vector<float> twice = gradient;
    layer.Backward(kKey, true, &twice, &din);
    for (const ParamSpec& spec : layer.module().params()) {
      for (std::int64_t i = 0; i < spec.shape.elements(); ++i) {
        const auto at = std::size_t(spec.offset + i);
        EXPECT_NEAR(twice[at], 2 * gradient[at], 1e-5) << spec.name << i;
      }
    }
  }
}

// Products of wide layers have other kernels.
TEST(NoisyLinearTest, WideLayerEqualsLoops) {
  Layer layer({.in = 700, .units = 400, .activation = Activation::kTanh, .place = kPlace}, 3);
  const std::vector<double> noisy = layer.Noisy(layer.doubles(), kKey);
  const std::vector<float> out = layer.Forward(kKey);
  for (std::int64_t b = 0; b < 3; ++b) {
    const Row want = layer.Reference(noisy, b);
    for (std::size_t o = 0; o < 400; ++o)
      EXPECT_NEAR(out[std::size_t(b) * 400 + o], want[o], 1e-4) << b << ", " << o;
  }
  std::vector<float> gradient(layer.value().size()), din;
  layer.Backward(kKey, false, &gradient, &din);
  test::ExpectSlopes(
      layer.module(), layer.value(), gradient,
      [&](std::span<const double> at) { return layer.Loss(layer.Noisy(at, kKey)); }, 1e-3);
}

// Exports and evaluations depend on it.
TEST(NoisyLinearTest, EqualsLinearLayerWithoutNoise) {
  Layer layer({.in = 5, .units = 19, .activation = Activation::kTanh, .place = kPlace}, 6);
  const std::vector<float> out = layer.Forward(std::nullopt);
  for (std::int64_t b = 0; b < 6; ++b) {
    const Row want = layer.Reference(layer.doubles(), b);
    for (std::size_t o = 0; o < 19; ++o)
      EXPECT_NEAR(out[std::size_t(b) * 19 + o], want[o], 1e-5) << b << ", " << o;
  }
  std::vector<float> gradient(layer.value().size(), 5), din;
  layer.Backward(std::nullopt, false, &gradient, &din);
  // The loss does not depend on the deviations, so this covers that their gradient is replaced.
  test::ExpectSlopes(
      layer.module(), layer.value(), gradient,
      [&](std::span<const double> at) { return layer.Loss(at); }, 1e-4);
  const std::vector<double> want_din = layer.InputGradient(layer.doubles());
  for (std::size_t i = 0; i < din.size(); ++i) EXPECT_NEAR(din[i], want_din[i], 1e-5) << i;
}

// Over draws an output has the mean μx + b and the variance c (c Σ σ²x² + σ_b²), c = E|N(0, 1)| =
// sqrt(2/π). Both are within 5 standard errors: a false alarm per 40,000 runs at most.
TEST(NoisyLinearTest, OutputsHaveMeanAndVarianceOfPaper) {
  constexpr std::size_t kDraws = 20000, kUnits = 4, kInputs = 5;
  Layer layer({.in = kInputs, .units = kUnits, .place = kPlace}, 1);
  std::vector<double> sum(kUnits), squares(kUnits);
  const Row mean = layer.Reference(layer.doubles(), 0), x = layer.row(0);
  for (std::size_t i = 0; i < kDraws; ++i) {
    const std::vector<float> out = layer.Forward(NoiseKey{.seed = 9, .draw = i});
    for (std::size_t o = 0; o < kUnits; ++o) {
      const double d = double(out[o]) - mean[o];
      sum[o] += d;
      squares[o] += d * d;
    }
  }
  const std::vector<double> value = layer.doubles();
  const Values values(layer.module(), value);
  const double c = std::sqrt(2 / std::numbers::pi);
  for (std::size_t o = 0; o < kUnits; ++o) {
    // Moments of s + Σ a ε: E ε² = c, E ε⁴ = 1.
    const double s = values["bias_sigma"][o];
    double a2 = 0, a4 = 0;
    for (std::size_t i = 0; i < kInputs; ++i) {
      const double a = values["weight_sigma"][o * kInputs + i] * x[i];
      a2 += a * a;
      a4 += a * a * a * a;
    }
    const double variance = c * (c * a2 + s * s);
    const double fourth = s * s * s * s + 6 * s * s * c * a2 + 3 * c * c * (a2 * a2 - a4) + a4;
    EXPECT_NEAR(sum[o] / kDraws, 0, 5 * std::sqrt(variance / kDraws)) << o;
    EXPECT_NEAR(squares[o] / kDraws, variance,
                5 * std::sqrt((fourth - variance * variance) / kDraws))
        << o;
  }
}

TEST(NoisyLinearTest, DeviationsBeginAtSigmaOverRootOfInputs) {
  const auto module = MakeNoisyLinear({.in = 16, .units = 3, .sigma = 0.4f});
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  InitParameters(*module, 7, value);
  std::vector<std::string> names;
  for (const ParamSpec& spec : module->params()) {
    names.push_back(spec.name);
    const auto all =
        std::span(value).subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    const bool sigma = spec.name.ends_with("sigma");
    // Means are uniform in ±1/4, and differ.
    for (const float v : all) {
      EXPECT_LE(std::abs(v), 0.25f);
      EXPECT_EQ(std::abs(v - 0.1f) < 1e-6f, sigma);
    }
    EXPECT_EQ(sigma, all[0] == all[1]);
  }
  EXPECT_THAT(names, testing::ElementsAre("weight", "bias", "weight_sigma", "bias_sigma"));
}

TEST(NoisyLinearTest, Bf16StaysWithinRoundingError) {
  const NoisyLinearOptions options{
      .in = 20, .units = 19, .activation = Activation::kTanh, .place = kPlace};
  Layer exact(options, 6), rounded(options, 6, Precision::kBF16);
  const std::vector<float> want = exact.Forward(kKey), got = rounded.Forward(kKey);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.02) << i;
  std::vector<float> want_gradient(exact.value().size()), want_din;
  std::vector<float> gradient(exact.value().size()), din;
  exact.Backward(kKey, false, &want_gradient, &want_din);
  rounded.Backward(kKey, false, &gradient, &din);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    EXPECT_NEAR(gradient[i], want_gradient[i], 0.1) << i;
  for (std::size_t i = 0; i < din.size(); ++i) EXPECT_NEAR(din[i], want_din[i], 0.05) << i;
}

}  // namespace
}  // namespace troop
