#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "kernels/elementwise/cast.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "tests/testing/gradient_check.h"

// Oracle: all rows that were ever seen, in fp64, in two passes.
namespace troop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kSize = 5;

class NormalizeTest : public ::testing::Test {
 protected:
  // [rows, 5]: element i around 100 i, i + 1 wide; the last one constant.
  Tensor Draw(std::int64_t rows) {
    Tensor x(DType::kF32, {rows, kSize});
    for (std::int64_t at = 0; at < rows * kSize; ++at) {
      const auto i = double(at % kSize);
      const bool constant = at % kSize == kSize - 1;
      const double value = 100 * i + (constant ? 0 : (i + 1) * (rng_.Uniform() - 0.5));
      x.as<float>()[std::size_t(at)] = float(value);
      seen_[std::size_t(at % kSize)].push_back(double(float(value)));
    }
    return x;
  }
  void See(std::int64_t rows) { layer_->UpdateStatistics(Draw(rows), value_); }
  Tensor Forward(const Tensor& x, DType to = DType::kF32) {
    const auto packed = layer_->MakePacked(Precision::kF32);
    layer_->Pack(value_, packed.get());
    Tensor y(to, x.shape());
    const ConstTensor in(x);
    layer_->Forward({.value = value_, .packed = packed.get()}, {&in, 1}, {&y, 1}, {});
    return y;
  }
  double Mean(std::size_t i) const {
    double sum = 0;
    for (const double x : seen_[i]) sum += x;
    return sum / double(seen_[i].size());
  }
  double Variance(std::size_t i) const {
    double sum = 0;
    for (const double x : seen_[i]) sum += (x - Mean(i)) * (x - Mean(i));
    return sum / double(seen_[i].size());
  }

  const std::unique_ptr<Module> layer_ = MakeNormalizedInput({kSize});
  std::vector<float> value_ = std::vector<float>(std::size_t(ParameterCount(*layer_)), 0.0f);
  std::vector<std::vector<double>> seen_ = std::vector<std::vector<double>>(kSize);
  Rng rng_{{.run_seed = 5}};
};

TEST_F(NormalizeTest, PassesClippedInputsBeforeFirstBatch) {
  Tensor x(DType::kF32, {1, kSize});
  std::ranges::copy(std::vector<float>{1.5f, -3, 9, -11, 400}, x.as<float>().begin());
  const Tensor y = Forward(x);
  EXPECT_THAT(std::vector<float>(y.as<float>().begin(), y.as<float>().end()),
              ElementsAre(1.5f, -3, 9, -10, 10));
}

TEST_F(NormalizeTest, MomentsCoverRowsOfBatchesOfAnySize) {
  for (const std::int64_t rows : {1, 7, 32, 3, 256, 1}) See(rows);
  const Tensor x = Draw(64);  // sees are over: only the oracle's copy grows
  for (auto& column : seen_) column.resize(300);
  const Tensor y = Forward(x);
  for (std::size_t at = 0; at < std::size_t(x.elements()); ++at) {
    const std::size_t i = at % kSize;
    const double want = (double(x.as<float>()[at]) - Mean(i)) / std::sqrt(Variance(i) + 1e-8);
    ASSERT_NEAR(y.as<float>()[at], std::clamp(want, -10.0, 10.0), 2e-4) << at;
  }
  for (std::size_t at = kSize - 1; at < std::size_t(x.elements()); at += kSize) {
    ASSERT_EQ(y.as<float>()[at], 0) << "what never changes is 0";
  }
}

TEST_F(NormalizeTest, ClipsOutliersAndBf16IsRounded) {
  See(100);
  Tensor x = Draw(3);
  x.as<float>()[0] = 1e9f;
  x.as<float>()[1] = -1e9f;
  const Tensor y = Forward(x);
  EXPECT_EQ(y.as<float>()[0], 10);
  EXPECT_EQ(y.as<float>()[1], -10);
  const Tensor rounded = Forward(x, DType::kBF16);
  for (std::size_t i = 0; i < std::size_t(x.elements()); ++i) {
    ASSERT_NEAR(ToF32(rounded.as<BF16>()[i]), y.as<float>()[i], std::abs(y.as<float>()[i]) / 256);
  }
}

TEST_F(NormalizeTest, OldBatchesDecay) {
  const auto& count = value_[std::size_t(layer_->params()[2].offset)];
  Tensor low(DType::kF32, {4096, kSize}), high(DType::kF32, {4096, kSize});
  std::ranges::fill(high.as<float>(), 1.0f);
  for (int n = 0; n < 300; ++n) layer_->UpdateStatistics(low, value_);
  EXPECT_EQ(count, 1e6f);
  for (int n = 0; n < 300; ++n) layer_->UpdateStatistics(high, value_);
  EXPECT_EQ(count, 1e6f);
  // 1 - (1e6 / (1e6 + 4096))^300, where sums without an end would say 0.5.
  EXPECT_NEAR(value_[0], 1 - std::pow(1e6 / (1e6 + 4096), 300), 1e-3);
}

TEST_F(NormalizeTest, LeavesStatisticsUntrainedAndAcceptsBytes) {
  ModelSetup setup;
  setup.network.normalize_observations = true;
  EnvSpec env{.id = "Test",
              .observation = {DType::kU8, {2, 3}},
              .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 2}};
  const auto network = MakeNetwork(setup, env);
  ASSERT_TRUE(network.ok()) << network.status().ToString();
  const auto params = (*network)->params();
  EXPECT_EQ(params[0].name, "input.mean");
  EXPECT_FALSE(params[0].trained);
  EXPECT_TRUE(params[3].trained);
  test::ModuleBench bench(**network, {DType::kU8, {3, 2, 3}}, Precision::kF32);
  bench.Loss();
  bench.Backward({}, false);
  const auto first_weight = bench.gradient.begin() + params[3].offset;
  EXPECT_TRUE(std::all_of(bench.gradient.begin(), first_weight, [](float g) { return g == 0; }));
  EXPECT_TRUE(std::any_of(first_weight, bench.gradient.end(), [](float g) { return g != 0; }));
  std::vector<float> value(std::size_t(ParameterCount(**network)));
  Tensor x(DType::kU8, {2, 2, 3});
  x.as<std::uint8_t>()[0] = 200;
  (*network)->UpdateStatistics(x, value);
  EXPECT_EQ(value[0], 100);
  EXPECT_EQ(value[std::size_t(params[1].offset)], 10000);
  EXPECT_EQ(value[std::size_t(params[2].offset)], 2);

  LayerConfig conv;
  conv.type = LayerType::kConv2d;
  setup.network.layers = {conv};
  EXPECT_THAT(MakeNetwork(setup, env).status().message(),
              HasSubstr("network.normalize_observations: images"));
}

TEST(OneHotTest, EncodesEachValueAndIgnoresOutOfRange) {
  ModelSetup setup;
  setup.network.one_hot = 3;
  EnvSpec env{.id = "Test",
              .observation = {DType::kI32, {2}},
              .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 2}};
  const auto network = MakeNetwork(setup, env);
  ASSERT_TRUE(network.ok()) << network.status().ToString();
  EXPECT_EQ((*network)->params()[0].shape, (Shape{64, 6}));
  setup.network.one_hot = 0;
  EXPECT_THAT(MakeNetwork(setup, env).status().message(), HasSubstr("set network.one_hot"));

  const auto layer = MakeOneHotInput(3);
  Tensor x(DType::kF32, {2, 3}), y(DType::kF32, {2, 9});
  std::ranges::copy(std::vector<float>{2, 0, 1, 3, -1, 0.5f}, x.as<float>().begin());
  std::ranges::fill(y.as<float>(), 7.0f);
  const ConstTensor in(x);
  layer->Forward({}, {&in, 1}, {&y, 1}, {});
  EXPECT_THAT(std::vector<float>(y.as<float>().begin(), y.as<float>().end()),
              ElementsAre(0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  Tensor bytes(DType::kU8, {1, 1}), half(DType::kBF16, {1, 3});
  bytes.as<std::uint8_t>()[0] = 1;
  const ConstTensor byte(bytes);
  layer->Forward({}, {&byte, 1}, {&half, 1}, {});
  EXPECT_EQ(ToF32(half.as<BF16>()[1]), 1);
  EXPECT_EQ(ToF32(half.as<BF16>()[0]) + ToF32(half.as<BF16>()[2]), 0);
}

}  // namespace
}  // namespace troop
