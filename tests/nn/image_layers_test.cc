// Layers of image classifiers against plain loops in f64, whose derivatives are central differences
// in f64: an error of a formula cannot be in both.
#include "nn/layers/image_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using test::ModuleBench;
using Numbers = std::vector<double>;
// The output for parameters, in the layout of the module, and an input.
using Reference = std::function<Numbers(const Numbers& value, const Numbers& x)>;

Numbers Wide(std::span<const float> from) { return Numbers(from.begin(), from.end()); }

// Derivative of Σ c·f by the central difference in one number.
Numbers Derivatives(const std::function<Numbers(const Numbers&)>& f, const Numbers& at,
                    const Numbers& c) {
  constexpr double kStep = 1e-5;
  Numbers derivatives, point = at;
  for (double& x : point) {
    const double origin = x;
    double difference = 0;
    for (const double sign : {1.0, -1.0}) {
      x = origin + sign * kStep;
      const Numbers y = f(point);
      for (std::size_t i = 0; i < y.size(); ++i) difference += sign * c[i] * y[i];
    }
    x = origin;
    derivatives.push_back(difference / (2 * kStep));
  }
  return derivatives;
}

// Absolute differences: all numbers of these tests are near 1.
void ExpectClose(std::span<const float> got, const Numbers& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(double(got[i]), expected[i], tolerance) << what << " " << i;
  }
}

// Compares output and all gradients, accumulated and not, with a reference in training mode.
void Check(const Module& module, const Shape& in, const Reference& reference) {
  ModuleBench bench(module, {DType::kF32, in}, Precision::kF32);
  Rng rng({3, Purpose::kTest});
  // Weights of 1 and biases of 0 would hide errors.
  for (float& v : bench.value) v += 0.3f * float(rng.Normal());
  (void)bench.Loss();
  const Numbers value = Wide(bench.value), x = Wide(bench.input.as<float>());
  const Numbers c = Wide(bench.direction.as<float>());
  ExpectClose(bench.output.as<float>(), reference(value, x), 2e-5, "output");
  const Numbers dx = Derivatives([&](const Numbers& at) { return reference(value, at); }, x, c);
  Numbers dvalue = Derivatives([&](const Numbers& at) { return reference(at, x); }, value, c);
  for (const bool accumulate : {false, true}) {
    Tensor din(DType::kF32, in);
    for (float& g : din.as<float>()) g = 7;  // overwritten
    std::ranges::fill(bench.gradient, accumulate ? 2.0f : 0.0f);
    bench.Backward(din, accumulate);
    ExpectClose(din.as<float>(), dx, 2e-4, "input gradient");
    Numbers expected = dvalue;
    if (accumulate) {
      for (double& g : expected) g += 2;
    }
    ExpectClose(bench.gradient, expected, 2e-4, "parameter gradient");
  }
  // Without wanted gradients nothing is written.
  bench.Backward();
}

// Element (b, y, x, c) of [B, h, w, c].
struct Image4 {
  std::int64_t h, w, c;
  std::size_t operator()(std::int64_t b, std::int64_t y, std::int64_t x, std::int64_t k) const {
    return std::size_t(((b * h + y) * w + x) * c + k);
  }
};

// nn.AvgPool2d with count_include_pad, its default.
TEST(AveragePoolTest, MatchesItsDefinition) {
  const MaxPoolOptions o{
      .height = 6, .width = 5, .channels = 3, .kernel = 3, .stride = 2, .padding = 1};
  const Image4 in{6, 5, 3};
  const Shape out = o.out();
  Check(*MakeAveragePool(o), {2, 6, 5, 3}, [&](const Numbers&, const Numbers& x) {
    Numbers y;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t i = 0; i < out[0]; ++i)
        for (std::int64_t j = 0; j < out[1]; ++j)
          for (std::int64_t c = 0; c < 3; ++c) {
            double sum = 0;
            for (std::int64_t r = 2 * i - 1; r < 2 * i + 2; ++r)
              for (std::int64_t t = 2 * j - 1; t < 2 * j + 2; ++t)
                if (r >= 0 && r < 6 && t >= 0 && t < 5) sum += x[in(b, r, t, c)];
            y.push_back(sum / 9);
          }
    return y;
  });
}

// nn.AdaptiveAvgPool2d: 7 rows to 3 have the areas 0-2, 2-4 and 4-6; 5 columns to 2 have 0-2 and
// 2-4.
TEST(AveragePoolTest, AdaptiveAreasCoverTheImage) {
  const Image4 in{7, 5, 2};
  const std::int64_t rows[][2] = {{0, 3}, {2, 5}, {4, 7}}, columns[][2] = {{0, 3}, {2, 5}};
  Check(*MakeAdaptiveAveragePool({7, 5, 2, 3, 2}), {2, 7, 5, 2},
        [&](const Numbers&, const Numbers& x) {
          Numbers y;
          for (std::int64_t b = 0; b < 2; ++b)
            for (const auto& row : rows)
              for (const auto& column : columns)
                for (std::int64_t c = 0; c < 2; ++c) {
                  double sum = 0;
                  for (std::int64_t r = row[0]; r < row[1]; ++r)
                    for (std::int64_t t = column[0]; t < column[1]; ++t) sum += x[in(b, r, t, c)];
                  y.push_back(sum / 9);
                }
          return y;
        });
}

// Rows of channels; value: weight, bias, running mean, running variance, 16 places each.
Numbers BatchNormReference(const Numbers& value, const Numbers& x, std::size_t c, bool relu) {
  Numbers y(x.size());
  const double n = double(x.size() / c);
  for (std::size_t k = 0; k < c; ++k) {
    double mean = 0, variance = 0;
    for (std::size_t i = k; i < x.size(); i += c) mean += x[i] / n;
    for (std::size_t i = k; i < x.size(); i += c) variance += std::pow(x[i] - mean, 2) / n;
    for (std::size_t i = k; i < x.size(); i += c) {
      y[i] = value[k] * (x[i] - mean) / std::sqrt(variance + 1e-5) + value[16 + k];
      if (relu) y[i] = std::max(y[i], 0.0);
    }
  }
  return y;
}

// The running statistics have no gradient, and do not influence training.
TEST(BatchNormTest, TrainingMatchesItsDefinition) {
  for (const bool relu : {false, true}) {
    const auto module =
        MakeBatchNorm({.channels = 5, .activation = relu ? Activation::kRelu : Activation::kNone});
    Check(*module, {3, 2, 4, 5}, [&](const Numbers& value, const Numbers& x) {
      return BatchNormReference(value, x, 5, relu);
    });
  }
}

// Far from 0 the squares alone would lose all digits of the variance.
TEST(BatchNormTest, LargeMeansKeepTheirDigits) {
  const auto module = MakeBatchNorm({.channels = 3});
  ModuleBench bench(*module, {DType::kF32, {50, 3}}, Precision::kF32);
  for (float& x : bench.input.as<float>()) x = 10000 + std::round(64 * x) / 64;
  (void)bench.Loss();
  ExpectClose(bench.output.as<float>(),
              BatchNormReference(Wide(bench.value), Wide(bench.input.as<float>()), 3, false), 2e-3,
              "output");
}

// Inference depends on the running statistics alone, which move towards those of a batch.
TEST(BatchNormTest, InferenceHasRunningStatistics) {
  const auto module = MakeBatchNorm({.channels = 2});
  ModuleBench bench(*module, {DType::kF32, {4, 2}}, Precision::kF32);
  const std::vector<float> x = {1, 0, 3, 0, 5, 10, 7, 10};
  std::copy(x.begin(), x.end(), bench.input.as<float>().begin());
  std::vector<float> statistics(bench.value.size());
  StepContext context = bench.Context();
  context.statistics = statistics;
  const ConstTensor in = bench.input;
  MutableBuffer cache(bench.plan.cache_bytes);
  module->Forward(context, {&in, 1}, {&bench.output, 1}, cache.bytes());
  // Means 4 and 5; unbiased variances 20 / 3 and 100 / 3. PyTorch's momentum of 0.1 from 0 and 1.
  UpdateRunningStatistics(*module, statistics, 0.1f, bench.value);
  const double mean[2] = {0.4, 0.5}, variance[2] = {0.9 + 2.0 / 3, 0.9 + 10.0 / 3};
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(double(bench.value[32 + c]), mean[c], 1e-6);
    EXPECT_NEAR(double(bench.value[48 + c]), variance[c], 1e-6);
  }
  EXPECT_EQ(bench.value[0], 1);  // trained parameters do not move
  (void)bench.Loss(false);
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected = (double(x[i]) - mean[i % 2]) / std::sqrt(variance[i % 2] + 1e-5);
    EXPECT_NEAR(double(bench.output.as<float>()[i]), expected, 1e-5) << i;
  }
}

// Odd and even sizes; the latter begin one channel earlier, as in PyTorch.
TEST(LocalResponseNormTest, MatchesItsDefinition) {
  for (const std::int64_t size : {5, 4, 1}) {
    // A large alpha, so that the second term of the gradient counts.
    const LocalResponseNormOptions o{
        .channels = 7, .size = size, .alpha = 0.3f, .beta = 0.75f, .k = 2};
    Check(*MakeLocalResponseNorm(o), {2, 3, 7}, [&](const Numbers&, const Numbers& x) {
      Numbers y(x.size());
      for (std::int64_t i = 0; i < std::int64_t(x.size()); ++i) {
        const std::int64_t c = i % 7;
        double sum = 0;
        for (std::int64_t j = c - size / 2; j <= c + (size - 1) / 2; ++j) {
          if (j >= 0 && j < 7) sum += std::pow(x[std::size_t(i - c + j)], 2);
        }
        y[std::size_t(i)] =
            x[std::size_t(i)] * std::pow(2 + double(o.alpha) * sum, -double(o.beta));
      }
      return y;
    });
  }
}

// y = W x + b of each row, with the parameters at `at`: weight [out, in], then bias at the next
// multiple of 16.
Numbers LinearReference(const Numbers& value, std::size_t at, const Numbers& x, std::size_t in,
                        std::size_t out) {
  Numbers y;
  for (std::size_t row = 0; row < x.size(); row += in) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = value[at + (out * in + 15) / 16 * 16 + o];
      for (std::size_t i = 0; i < in; ++i) sum += value[at + o * in + i] * x[row + i];
      y.push_back(sum);
    }
  }
  return y;
}

// Both parts have parameters, of which the second's have an offset.
TEST(ShortcutTest, AddsBranchAndProjection) {
  // 4 x 6: the bias of the branch begins at 32, its parameters end at 48.
  const auto module =
      MakeShortcut(MakeLinear(6, 4), MakeLinear(6, 4, Activation::kNone), Activation::kTanh);
  Check(*module, {3, 6}, [](const Numbers& value, const Numbers& x) {
    Numbers y = LinearReference(value, 0, x, 6, 4), more = LinearReference(value, 48, x, 6, 4);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::tanh(y[i] + more[i]);
    return y;
  });
}

// The identity, which needs equal shapes.
TEST(ShortcutTest, AddsTheInputWithoutProjection) {
  const auto module = MakeShortcut(MakeLinear(5, 5), nullptr, Activation::kNone);
  Check(*module, {3, 5}, [](const Numbers& value, const Numbers& x) {
    Numbers y = LinearReference(value, 0, x, 5, 5);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
    return y;
  });
  const TensorSpec other{DType::kF32, {2, 6}};
  EXPECT_FALSE(
      MakeShortcut(MakeLinear(6, 4), nullptr, Activation::kNone)->MakePlan({&other, 1}).ok());
}

// Padding, stride, groups, and no bias. value: weight [filters, 3, 3, 2].
TEST(Conv2dTest, GroupsAndPaddingMatchTheirDefinition) {
  const Conv2dOptions o{.height = 5,
                        .width = 4,
                        .channels = 4,
                        .filters = 6,
                        .kernel = 3,
                        .stride = 2,
                        .activation = Activation::kTanh,
                        .padding = 1,
                        .groups = 2,
                        .bias = false};
  const auto module = MakeConv2d(o);
  EXPECT_EQ(module->params().size(), 1u);
  const Image4 in{5, 4, 4};
  Check(*module, {2, 5, 4, 4}, [&](const Numbers& value, const Numbers& x) {
    Numbers y;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t p = 0; p < 3; ++p)
        for (std::int64_t q = 0; q < 2; ++q)
          for (std::int64_t f = 0; f < 6; ++f) {
            double sum = 0;
            for (std::int64_t r = 0; r < 3; ++r)
              for (std::int64_t t = 0; t < 3; ++t)
                for (std::int64_t c = 0; c < 2; ++c) {
                  const std::int64_t i = 2 * p + r - 1, j = 2 * q + t - 1;
                  if (i < 0 || i >= 5 || j < 0 || j >= 4) continue;
                  sum += value[std::size_t(((f * 3 + r) * 3 + t) * 2 + c)] *
                         x[in(b, i, j, f / 3 * 2 + c)];
                }
            y.push_back(std::tanh(sum));
          }
    return y;
  });
}

// A bf16 network computes the layers within the rounding of its 8 digits.
TEST(ImageLayersTest, Bf16IsNearF32) {
  if (!BF16Available()) GTEST_SKIP() << "no bf16 on this processor";
  std::vector<SequentialPart> branch, parts;
  branch.push_back({"conv", MakeConv2d({.height = 6,
                                        .width = 6,
                                        .channels = 8,
                                        .filters = 8,
                                        .kernel = 3,
                                        .padding = 1,
                                        .bias = false})});
  branch.push_back({"norm", MakeBatchNorm({.channels = 8, .activation = Activation::kRelu})});
  parts.push_back({"input", MakeInput(1.0f)});
  parts.push_back(
      {"block", MakeShortcut(MakeSequential(std::move(branch)), nullptr, Activation::kRelu)});
  parts.push_back({"response", MakeLocalResponseNorm({.channels = 8, .alpha = 0.1f})});
  parts.push_back({"pool", MakeAdaptiveAveragePool({6, 6, 8, 2, 2})});
  parts.push_back({"fc", MakeLinear(32, 3)});
  const auto module = MakeSequential(std::move(parts));
  ModuleBench wide(*module, {DType::kF32, {4, 6, 6, 8}}, Precision::kF32);
  ModuleBench narrow(*module, {DType::kF32, {4, 6, 6, 8}}, Precision::kBF16);
  (void)wide.Loss(), (void)narrow.Loss();
  wide.Backward(), narrow.Backward();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wide.gradient.size(); ++i) {
    difference += std::pow(double(wide.gradient[i] - narrow.gradient[i]), 2);
    norm += std::pow(double(wide.gradient[i]), 2);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(difference / norm), 0.05);
  ExpectClose(narrow.output.as<float>(), Wide(wide.output.as<float>()), 0.05, "output");
}

TEST(FlattenTest, MatchesItsDefinition) {
  const Image4 in{3, 4, 5};
  Check(*MakeFlatten(3, 4, 5), {2, 3, 4, 5}, [&](const Numbers&, const Numbers& x) {
    Numbers y;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t c = 0; c < 5; ++c)
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t j = 0; j < 4; ++j) y.push_back(x[in(b, i, j, c)]);
    return y;
  });
}

// The share that is kept, equal masks in both passes, and other masks for other rows and sites.
TEST(DropoutLayerTest, DropsByKeyAndScalesTheRest) {
  constexpr std::int64_t kRows = 3, kElements = 20000;
  constexpr float kRate = 0.3f;
  std::vector<std::vector<bool>> masks;
  for (const std::uint32_t site : {0u, 1u}) {
    const auto module = MakeDropout({.elements = kElements, .rate = kRate, .site = site});
    ModuleBench bench(*module, {DType::kF32, {kRows, kElements}}, Precision::kF32);
    for (float& x : bench.input.as<float>()) x = x == 0 ? 1 : x;
    (void)bench.Loss();
    EXPECT_TRUE(std::ranges::equal(bench.output.as<float>(), bench.input.as<float>()));
    const std::vector<DropoutKey> keys{MakeDropoutKey(5, 0, 0), MakeDropoutKey(5, 1, 0),
                                       MakeDropoutKey(5, 0, 1)};
    bench.dropout = keys;
    (void)bench.Loss();
    Tensor din(DType::kF32, {kRows, kElements});
    bench.Backward(din);
    // The factor of each element, from the values alone.
    const auto x = bench.input.as<float>(), y = bench.output.as<float>();
    const auto c = bench.direction.as<float>(), dx = din.as<float>();
    for (std::size_t b = 0; b < std::size_t(kRows); ++b) {
      std::vector<bool>& mask = masks.emplace_back();
      for (std::size_t i = b * kElements; i < (b + 1) * kElements; ++i) {
        mask.push_back(y[i] != 0);
        const double factor = mask.back() ? 1 / (1 - double(kRate)) : 0;
        ASSERT_NEAR(y[i], factor * double(x[i]), 1e-4 * std::abs(double(x[i])));
        ASSERT_NEAR(dx[i], factor * double(c[i]), 1e-4 * std::abs(double(c[i])));
      }
      // Five standard deviations of the share.
      const auto kept = double(std::ranges::count(mask, true)) / double(kElements);
      EXPECT_NEAR(kept, 1 - double(kRate), 5 * std::sqrt(0.21 / double(kElements)));
    }
  }
  for (std::size_t a = 0; a < masks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(masks[a], masks[b]) << a << " " << b;
  }
}

}  // namespace
}  // namespace troop
