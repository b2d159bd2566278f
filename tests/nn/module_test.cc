#include "nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nn/layers/layers.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using test::CheckGradients;
using test::ModuleBench;

TensorSpec F32(const Shape& shape) { return {DType::kF32, shape}; }

TEST(LinearTest, GradientsMatchFiniteDifferences) {
  for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kTanh})
    CheckGradients(*MakeLinear(19, 13, activation), F32({5, 19}));
}

TEST(LinearTest, FlattensItsInput) { CheckGradients(*MakeLinear(24, 7), F32({3, 2, 3, 4})); }

TEST(Conv2dTest, GradientsMatchFiniteDifferences) {
  CheckGradients(*MakeConv2d({.height = 10,
                              .width = 9,
                              .channels = 4,
                              .filters = 16,
                              .kernel = 3,
                              .stride = 1,
                              .activation = Activation::kRelu}),
                 F32({2, 10, 9, 4}));
  CheckGradients(
      *MakeConv2d(
          {.height = 11, .width = 11, .channels = 3, .filters = 5, .kernel = 4, .stride = 2}),
      F32({3, 11, 11, 3}));
  CheckGradients(*MakeConv2d({.height = 20,
                              .width = 20,
                              .channels = 4,
                              .filters = 8,
                              .kernel = 8,
                              .stride = 4,
                              .activation = Activation::kTanh}),
                 F32({2, 20, 20, 4}));
}

TEST(LayerNormTest, GradientsMatchFiniteDifferences) {
  CheckGradients(*MakeLayerNorm(33, Activation::kTanh), F32({4, 33}));
  CheckGradients(*MakeLayerNorm(16), F32({3, 5, 2, 16}));  // channels of pixels
  CheckGradients(*MakeLayerNorm(7, Activation::kRelu), F32({5, 7}));
}

// y = activation(w (x - mean) / sqrt(variance + 1e-5) + b), in f64.
TEST(LayerNormTest, MatchesItsFormula) {
  const auto module = MakeLayerNorm(21, Activation::kRelu);
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    ModuleBench bench(*module, F32({6, 21}), precision);
    for (std::size_t i = 0; i < bench.value.size(); ++i) bench.value[i] += 0.01f * float(i);
    // Far from 0, where the squares alone would lose all digits.
    for (float& x : bench.input.as<float>()) x += 1000;
    (void)bench.Loss();
    const auto x = bench.input.as<float>(), y = bench.output.as<float>();
    for (std::size_t row = 0; row < 6; ++row) {
      double mean = 0, variance = 0;
      for (std::size_t i = 0; i < 21; ++i) mean += double(x[row * 21 + i]) / 21;
      for (std::size_t i = 0; i < 21; ++i)
        variance += std::pow(double(x[row * 21 + i]) - mean, 2) / 21;
      for (std::size_t i = 0; i < 21; ++i) {
        const double w = double(bench.value[i]), b = double(bench.value[32 + i]);
        const double z = w * (double(x[row * 21 + i]) - mean) / std::sqrt(variance + 1e-5) + b;
        EXPECT_NEAR(double(y[row * 21 + i]), std::max(z, 0.0), 1e-3) << row << " " << i;
      }
    }
  }
}

TEST(ActivationTest, GradientsMatchFiniteDifferences) {
  CheckGradients(*MakeActivation(Activation::kRelu), F32({4, 33}));
  CheckGradients(*MakeActivation(Activation::kTanh), F32({4, 33}));
}

TEST(DuelingHeadTest, GradientsMatchFiniteDifferences) {
  CheckGradients(*MakeDuelingHead(32, 0, 5), F32({6, 32}));
  CheckGradients(*MakeDuelingHead(32, 16, 5), F32({6, 32}));  // hidden layers in place
  CheckGradients(*MakeDuelingHead(31, 10, 3), F32({6, 31}));  // and gathered
  CheckGradients(*MakeDuelingHead(32, 16, 4, 5), F32({6, 32}));
  CheckGradients(*MakeDuelingHead(31, 0, 3, 2), F32({6, 31}));
}

TEST(SequentialTest, GradientsMatchFiniteDifferences) {
  std::vector<SequentialPart> parts;
  parts.push_back({"conv", MakeConv2d({.height = 8,
                                       .width = 8,
                                       .channels = 4,
                                       .filters = 16,
                                       .kernel = 3,
                                       .activation = Activation::kRelu})});
  parts.push_back({"plain", MakeLinear(6 * 6 * 16, 24)});
  parts.push_back({"tanh", MakeActivation(Activation::kTanh)});
  parts.push_back({"fused", MakeLinear(24, 16, Activation::kRelu)});
  parts.push_back({"head", MakeDuelingHead(16, 16, 4)});
  CheckGradients(*MakeSequential(std::move(parts)), F32({4, 8, 8, 4}));
}

TEST(SequentialTest, ComposesNamesAndOffsetsOfParts) {
  std::vector<SequentialPart> parts;
  parts.push_back({"a", MakeLinear(3, 5)});
  parts.push_back({"b", MakeLinear(5, 2)});
  const auto module = MakeSequential(std::move(parts));
  std::vector<std::string> names;
  std::int64_t end = 0;
  for (const ParamSpec& spec : module->params()) {
    names.push_back(spec.name);
    EXPECT_GE(spec.offset, end) << spec.name;
    EXPECT_EQ(spec.offset % 16, 0) << spec.name;
    end = spec.offset + spec.shape.elements();
  }
  EXPECT_THAT(names, ::testing::ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
}

std::unique_ptr<Module> SmallConvNet() {
  std::vector<SequentialPart> parts;
  parts.push_back({"input", MakeInput(1.0f / 255)});
  parts.push_back({"conv", MakeConv2d({.height = 12,
                                       .width = 12,
                                       .channels = 4,
                                       .filters = 16,
                                       .kernel = 4,
                                       .stride = 2,
                                       .activation = Activation::kRelu})});
  parts.push_back({"fc", MakeLinear(5 * 5 * 16, 32, Activation::kRelu)});
  parts.push_back({"head", MakeDuelingHead(32, 16, 6)});
  return MakeSequential(std::move(parts));
}

TEST(LayerNormTest, UnpackedMatchesPacked) {
  const auto module = MakeLayerNorm(24, Activation::kRelu);
  ModuleBench bench(*module, F32({4, 24}), Precision::kF32);
  for (std::size_t i = 0; i < bench.value.size(); ++i) bench.value[i] += 0.01f * float(i);
  const double loss = bench.Loss();
  bench.Backward();
  const std::vector<float> gradient = bench.gradient;
  bench.packed.reset();
  EXPECT_EQ(bench.Rerun(), loss);
  bench.Backward({}, false);
  EXPECT_EQ(bench.gradient, gradient);
}

// Within a bf16 network the layer gets and gives bf16.
TEST(LayerNormTest, BF16GradientApproximatesF32) {
  std::vector<SequentialPart> parts;
  parts.push_back({"input", MakeInput(1)});
  parts.push_back({"first", MakeLinear(24, 48)});
  parts.push_back({"norm", MakeLayerNorm(48, Activation::kRelu)});
  parts.push_back({"last", MakeLinear(48, 8)});
  const auto module = MakeSequential(std::move(parts));
  std::vector<float> gradients[2];
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    ModuleBench bench(*module, F32({32, 24}), precision);
    (void)bench.Loss();
    bench.Backward();
    gradients[precision == Precision::kBF16] = bench.gradient;
  }
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    difference += std::pow(double(gradients[0][i]) - double(gradients[1][i]), 2);
    size += std::pow(double(gradients[0][i]), 2);
  }
  EXPECT_GT(size, 0);
  // A wrong derivative is off by its whole size; rounding flips the sign of few units.
  EXPECT_LT(difference, 0.25 * 0.25 * size);
}

TEST(SequentialTest, ScalesByteObservations) {
  const auto module = SmallConvNet();
  CheckGradients(*module, {DType::kU8, {3, 12, 12, 4}}, false);
  // Byte observations give the same result as f32 observations that were scaled before.
  ModuleBench bytes(*module, {DType::kU8, {3, 12, 12, 4}}, Precision::kF32);
  ModuleBench floats(*module, F32({3, 12, 12, 4}), Precision::kF32);
  for (std::int64_t i = 0; i < bytes.input.elements(); ++i)
    floats.input.data<float>()[i] = float(bytes.input.data<std::uint8_t>()[i]);
  bytes.Loss();
  floats.Loss();
  EXPECT_TRUE(std::ranges::equal(bytes.output.as<float>(), floats.output.as<float>()));
}

TEST(SequentialTest, InferenceMatchesTrainingBitwise) {
  const auto module = SmallConvNet();
  for (const auto precision : {Precision::kF32, Precision::kBF16}) {
    ModuleBench bench(*module, {DType::kU8, {4, 12, 12, 4}}, precision);
    const double kept = bench.Loss(true);
    EXPECT_EQ(kept, bench.Loss(false));
  }
}

TEST(SequentialTest, AccumulatesOrOverwritesGradient) {
  const auto module = SmallConvNet();
  for (const auto precision : {Precision::kF32, Precision::kBF16}) {
    ModuleBench bench(*module, {DType::kU8, {4, 12, 12, 4}}, precision);
    bench.Loss();
    bench.Backward();
    const std::vector<float> once = bench.gradient;
    bench.Backward();
    for (std::size_t i = 0; i < once.size(); ++i)
      ASSERT_NEAR(bench.gradient[i], 2 * once[i], 1e-5 * std::abs(once[i]) + 1e-7) << i;
    bench.Backward({}, false);
    // Another kernel may sum in another order.
    for (std::size_t i = 0; i < once.size(); ++i)
      ASSERT_NEAR(bench.gradient[i], once[i], 1e-5 * std::abs(once[i]) + 1e-6) << i;
  }
}

// bf16 keeps 8 bits, so a sum is off by about 0.3 % of its spread, and about as many relus switch:
// of the gradient's norm that is sqrt(0.003), 5 %.
TEST(SequentialTest, BF16GradientApproximatesF32) {
  const auto module = SmallConvNet();
  ModuleBench exact(*module, {DType::kU8, {16, 12, 12, 4}}, Precision::kF32);
  ModuleBench brief(*module, {DType::kU8, {16, 12, 12, 4}}, Precision::kBF16);
  const double loss = exact.Loss();
  EXPECT_NEAR(brief.Loss(), loss, 0.02 * std::abs(loss) + 0.05);
  exact.Backward();
  brief.Backward();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < exact.gradient.size(); ++i) {
    error += std::pow(exact.gradient[i] - brief.gradient[i], 2);
    norm += std::pow(exact.gradient[i], 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 0.1);
}

TEST(ModuleTest, UnpackedMatchesPacked) {
  const auto module = SmallConvNet();
  ModuleBench with(*module, {DType::kU8, {3, 12, 12, 4}}, Precision::kF32);
  ModuleBench without(*module, {DType::kU8, {3, 12, 12, 4}}, Precision::kF32);
  const double expected = with.Loss();
  with.Backward();
  without.packed = nullptr;
  EXPECT_EQ(without.Rerun(), expected);
  without.Backward();
  EXPECT_EQ(without.gradient, with.gradient);
}

TEST(ModuleTest, OnePackedServesEveryBatchSizeAndTracksValues) {
  const auto module = SmallConvNet();
  ModuleBench one(*module, {DType::kU8, {1, 12, 12, 4}}, Precision::kF32);
  ModuleBench many(*module, {DType::kU8, {32, 12, 12, 4}}, Precision::kF32);
  const auto losses_of = [&](Packed* packed) {
    const auto run = [&](ModuleBench& bench) {
      std::unique_ptr<Packed> own = std::move(bench.packed);
      bench.packed.reset(packed);
      const double loss = bench.Rerun();
      (void)bench.packed.release();
      bench.packed = std::move(own);
      return loss;
    };
    return std::pair(run(one), run(many));
  };
  const auto shared = module->MakePacked(Precision::kF32);
  module->Pack(one.value, shared.get());
  EXPECT_EQ(losses_of(shared.get()), std::pair(one.Loss(), many.Loss()));
  for (float& v : one.value) v *= 0.5f;
  many.value = one.value;
  module->Pack(one.value, shared.get());
  EXPECT_EQ(losses_of(shared.get()), std::pair(one.Loss(), many.Loss()));
}

TEST(ModuleTest, OnePackedMayMoveBetweenThreads) {
  const auto module = SmallConvNet();
  ModuleBench bench(*module, {DType::kU8, {8, 12, 12, 4}}, Precision::kF32);
  const double here = bench.Loss();
  double there = 0;
  std::thread([&] { there = bench.Loss(); }).join();
  EXPECT_EQ(here, there);
}

TEST(ModuleTest, PlanRejectsWrongShapes) {
  const TensorSpec wrong = F32({2, 7}), scalar = F32({});
  EXPECT_EQ(MakeLinear(6, 3)->MakePlan({&wrong, 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeLinear(6, 3)->MakePlan({&scalar, 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeLinear(6, 3)->MakePlan({}).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(SmallConvNet()->MakePlan({&wrong, 1}).status().message(),
              ::testing::HasSubstr("conv: conv2d takes 576 elements per row"));
}

}  // namespace
}  // namespace troop
