#include "nn/models/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/models/q_network_spec.h"
#include "nn/models/trunk.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using test::CheckGradients;
using test::ModuleBench;
using ::testing::HasSubstr;

EnvSpec Env(const TensorSpec& observation, std::int64_t actions, float scale = 1) {
  EnvSpec env;
  env.id = "Test-v0";
  env.observation = observation;
  env.observation_scale = scale;
  env.action.count = actions;
  return env;
}

LayerConfig Conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  LayerConfig layer;
  layer.type = LayerType::kConv2d;
  layer.filters = filters;
  layer.kernel = kernel;
  layer.stride = stride;
  return layer;
}

LayerConfig Linear(std::int64_t units, Activation activation = Activation::kRelu) {
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  layer.activation = activation;
  return layer;
}

std::unique_ptr<Module> Make(const ModelSetup& setup, const EnvSpec& env) {
  auto network = MakeNetwork(setup, env);
  EXPECT_TRUE(network.ok()) << network.status().ToString();
  return *std::move(network);
}

std::vector<std::string> Names(const Module& module) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : module.params()) names.push_back(spec.name + spec.shape.ToString());
  return names;
}

TEST(NetworkTest, DefaultHasTwoLayersOf64AndDuelingHead) {
  const auto network = Make({}, Env({DType::kF32, {4}}, 2));
  EXPECT_THAT(Names(*network),
              ::testing::ElementsAre("layers.0.weight[64, 4]", "layers.0.bias[64]",
                                     "layers.1.weight[64, 64]", "layers.1.bias[64]",
                                     "head.value.weight[1, 64]", "head.value.bias[1]",
                                     "head.advantage.weight[2, 64]", "head.advantage.bias[2]"));
  CheckGradients(*network, {DType::kF32, {5, 4}}, false);
}

TEST(NetworkTest, GradientsMatchFiniteDifferencesInEveryShape) {
  ModelSetup setup;
  setup.network.layers = {Conv(16, 3, 1), Linear(128)};
  setup.network.dueling = false;
  CheckGradients(*Make(setup, Env({DType::kU8, {10, 10, 4}}, 6)), {DType::kU8, {2, 10, 10, 4}},
                 false);
  setup.network.dueling = true;
  setup.network.dueling_units = 24;
  setup.network.layers = {Conv(8, 4, 2), Conv(12, 3, 1), Linear(40, Activation::kTanh),
                          Linear(20, Activation::kNone)};
  CheckGradients(*Make(setup, Env({DType::kU8, {14, 14, 3}}, 4, 1 / 255.0f)),
                 {DType::kU8, {3, 14, 14, 3}}, false);
}

// Too large to be run in one call, and wide enough for the kernels without packing.
TEST(NetworkTest, GradientsMatchFiniteDifferencesInNatureShape) {
  ModelSetup setup;
  setup.network.layers = {Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)};
  setup.network.dueling_units = 96;
  const auto network = Make(setup, Env({DType::kU8, {84, 84, 4}}, 6, 1 / 255.0f));
  CheckGradients(*network, {DType::kU8, {2, 84, 84, 4}}, false, {.directions = 2});
}

// [S, h, w, c] of each item → [h, w, S·c], element by element.
Tensor ChannelsLast(const Tensor& in, std::int64_t stack, std::int64_t side,
                    std::int64_t channels) {
  Tensor out(in.dtype(), {in.dim(0), side, side, stack * channels});
  const std::size_t size = in.bytes().size() / std::size_t(in.elements());
  const std::byte* from = in.bytes().data();
  for (std::int64_t b = 0; b < in.dim(0); ++b) {
    for (std::int64_t s = 0; s < stack; ++s) {
      for (std::int64_t pixel = 0; pixel < side * side; ++pixel) {
        for (std::int64_t c = 0; c < channels; ++c, from += size) {
          const std::int64_t at = ((b * side * side + pixel) * stack + s) * channels + c;
          std::copy_n(from, size, out.bytes().data() + std::size_t(at) * size);
        }
      }
    }
  }
  return out;
}

TEST(NetworkTest, StackedImagesMatchChannels) {
  constexpr std::int64_t kSide = 40;  // more than one block of the conversion
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    for (const std::int64_t channels : {1, 3}) {
      for (const std::int64_t stack : {1, 4, 5}) {
        ModelSetup setup;
        setup.network.layers = {Conv(8, 4, 2), Conv(12, 3, 1)};
        setup.frame_stack = stack;
        Shape frame = {kSide, kSide};
        if (channels > 1) frame = {kSide, kSide, channels};
        const EnvSpec env = Env({dtype, frame}, 3, 1 / 255.0f);
        const auto network = Make(setup, env);
        const TensorSpec input = NetworkInput(setup, env);
        EXPECT_EQ(input.shape.elements(), stack * kSide * kSide * channels);
        setup.frame_stack = 1;
        const auto flat =
            Make(setup, Env({dtype, {kSide, kSide, stack * channels}}, 3, 1 / 255.0f));
        EXPECT_EQ(Names(*network), Names(*flat));
        for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
          ModuleBench a(*network, {dtype, input.shape.Prepend(3)}, precision);
          ModuleBench b(*flat, {dtype, {3, kSide, kSide, stack * channels}}, precision);
          b.input = ChannelsLast(a.input, stack, kSide, channels);
          a.Loss(false);
          b.Loss(false);
          const auto q = a.output.as<float>(), want = b.output.as<float>();
          EXPECT_EQ(std::vector<float>(q.begin(), q.end()),
                    std::vector<float>(want.begin(), want.end()))
              << TensorSpec{dtype, input.shape}.ToString();
        }
      }
    }
  }
}

TEST(NetworkTest, StackedVectorsMatchOneRow) {
  ModelSetup setup;
  setup.frame_stack = 3;
  const auto stacked = Make(setup, Env({DType::kF32, {4}}, 2));
  setup.frame_stack = 1;
  const auto row = Make(setup, Env({DType::kF32, {12}}, 2));
  EXPECT_EQ(Names(*stacked), Names(*row));
  ModuleBench a(*stacked, {DType::kF32, {5, 3, 4}}, Precision::kF32);
  ModuleBench b(*row, {DType::kF32, {5, 12}}, Precision::kF32);
  EXPECT_EQ(a.Loss(false), b.Loss(false));
}

TEST(NetworkTest, GradientsOfStackedImagesMatchFiniteDifferences) {
  ModelSetup setup;
  setup.network.layers = {Conv(8, 4, 2), Linear(20)};
  setup.frame_stack = 4;
  CheckGradients(*Make(setup, Env({DType::kU8, {14, 14}}, 4, 1 / 255.0f)),
                 {DType::kU8, {3, 4, 14, 14}}, false);
}

TEST(NetworkTest, QDoesNotDependOnBatch) {
  ModelSetup setup;
  setup.network.layers = {Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)};
  setup.network.dueling_units = 96;
  const auto network = Make(setup, Env({DType::kU8, {84, 84, 4}}, 6, 1 / 255.0f));
  ModuleBench many(*network, {DType::kU8, {70, 84, 84, 4}}, Precision::kF32);
  ModuleBench one(*network, {DType::kU8, {1, 84, 84, 4}}, Precision::kF32);
  many.Loss(false);
  std::ranges::copy(many.input.Rows(69, 1).bytes(), one.input.bytes().begin());
  one.Loss(false);
  for (int a = 0; a < 6; ++a)
    EXPECT_NEAR(one.output.data<float>()[a], many.output.Rows(69, 1).data<float>()[a], 1e-5);
}

TEST(NetworkTest, InitDependsOnSeedAloneAndStaysWithinBounds) {
  const auto network = Make({}, Env({DType::kF32, {4}}, 2));
  const auto count = std::size_t(ParameterCount(*network));
  EXPECT_EQ(count % 16, 0u);
  std::vector<float> a(count, 9), b(count, 9), c(count, 9);
  InitParameters(*network, 1, a);
  InitParameters(*network, 1, b);
  InitParameters(*network, 2, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  std::size_t inside = 0;
  for (const ParamSpec& spec : network->params()) {
    const float bound = 1 / std::sqrt(float(spec.fan_in));
    double square = 0;
    for (std::int64_t i = 0; i < spec.shape.elements(); ++i, ++inside) {
      const float v = a[std::size_t(spec.offset + i)];
      EXPECT_LE(std::abs(v), bound);
      square += double(v) * double(v);
    }
    // A uniform number's mean square is a third of its bound's; 4096 of them are within 10 %.
    if (spec.shape.elements() >= 4096) {
      EXPECT_NEAR(square / double(spec.shape.elements()), bound * bound / 3, bound * bound / 30);
    }
  }
  std::size_t zeros = 0;
  for (const float v : a) zeros += v == 0;
  EXPECT_GE(zeros, count - inside) << "padding is 0";
}

TEST(NetworkTest, DistributionalHeadHasAtomsForEachAction) {
  const EnvSpec env = Env({DType::kF32, {4}}, 3);
  for (const bool dueling : {false, true}) {
    for (const std::int64_t units : {std::int64_t{8}, std::int64_t{600}}) {  // small and general
      ModelSetup setup;
      setup.critic = CriticKind::kQuantile;
      setup.atoms = 7;
      setup.network.layers = {Linear(units)};
      setup.network.dueling = dueling;
      const auto network = Make(setup, env);
      const TensorSpec in{DType::kF32, {2, 4}};
      EXPECT_EQ(network->MakePlan({&in, 1})->out[0], (TensorSpec{DType::kF32, {2, 21}}));
      if (units < 100) CheckGradients(*network, in, false);
      EXPECT_THAT(Names(*network),
                  ::testing::Contains(
                      fmt::format("head.{}weight[21, {}]", dueling ? "advantage." : "", units)));
    }
  }
}

std::string ErrorOf(const ModelSetup& setup, const EnvSpec& env) {
  const auto network = MakeNetwork(setup, env);
  if (network.ok()) return "ok";
  EXPECT_EQ(network.status().code(), Code::kInvalidArgument);
  return network.status().message();
}

TEST(NetworkTest, RejectsChannelsFirstImages) {
  ModelSetup setup;
  setup.network.layers = {Conv(16, 3, 1)};  // which fits all of these
  for (const Shape& shape : {Shape{4, 84, 84}, Shape{3, 64, 96}, Shape{12, 84, 84}}) {
    EXPECT_THAT(ErrorOf(setup, Env({DType::kU8, shape}, 6)),
                HasSubstr(shape.ToString() + " have their channels first"));
  }
  for (const Shape& shape : {Shape{84, 84, 4}, Shape{10, 10, 4}, Shape{7, 7, 3}, Shape{5, 9, 16}}) {
    EXPECT_EQ(ErrorOf(setup, Env({DType::kU8, shape}, 6)), "ok") << shape.ToString();
  }
}

TEST(NetworkTest, AdvisesAgainstLinearLayersOnImages) {
  ModelSetup linear, conv;
  conv.network.layers = {Conv(16, 3, 1)};
  const auto advice = [](const ModelSetup& setup, DType dtype, const Shape& shape) {
    return PictureAdvice(setup, Env({dtype, shape}, 6));
  };
  EXPECT_THAT(advice(linear, DType::kU8, {84, 84, 3}), HasSubstr("no layer of network.layers"));
  EXPECT_NE(advice(linear, DType::kU8, {84, 84}), "");
  EXPECT_NE(advice(linear, DType::kF32, {3, 64, 64}), "");
  EXPECT_EQ(advice(conv, DType::kU8, {84, 84, 3}), "");
  EXPECT_EQ(advice(linear, DType::kF32, {84, 84}), "");
  EXPECT_EQ(advice(linear, DType::kU8, {10, 10, 4}), "");
}

TEST(NetworkTest, RejectsInvalidNetworks) {
  const EnvSpec flat = Env({DType::kF32, {4}}, 2), image = Env({DType::kU8, {10, 10, 4}}, 6);
  ModelSetup setup;
  setup.network.layers = {Conv(16, 3, 1)};
  EXPECT_THAT(ErrorOf(setup, flat), HasSubstr("network.layers[0]: conv2d needs [height, width"));
  setup.network.layers = {Conv(16, 11, 1)};
  EXPECT_THAT(ErrorOf(setup, image), HasSubstr("network.layers[0].kernel = 11 is larger"));
  setup.network.layers = {Conv(16, 3, 0)};
  EXPECT_THAT(ErrorOf(setup, image), HasSubstr("needs filters, kernel and stride > 0"));
  setup.network.layers = {{.type = LayerType::kLayerNorm}};
  EXPECT_THAT(ErrorOf(setup, Env({DType::kF32, {}}, 2)), HasSubstr("at least one axis"));
  setup.network.layers = {Linear(8), Linear(0)};
  EXPECT_THAT(ErrorOf(setup, flat), HasSubstr("network.layers[1].units = 0"));
  setup = {};
  setup.network.dueling_units = -1;
  EXPECT_THAT(ErrorOf(setup, flat), HasSubstr("network.dueling_units = -1"));
  EXPECT_THAT(ErrorOf({}, Env({DType::kI64, {4}}, 2)), HasSubstr("observations of u8 or f32"));
  EXPECT_THAT(ErrorOf({}, Env({DType::kF32, {0}}, 2)), HasSubstr("observations are empty"));
  EnvSpec continuous = Env({DType::kF32, {3}}, 0);
  continuous.action.kind = ActionSpec::Kind::kContinuous;
  EXPECT_THAT(ErrorOf({}, continuous),
              HasSubstr("needs discrete ones; set learner.algorithm = \"dpg\", \"td3\", \"sac\","));
}

// On a GPU the networks are separate classes, which have linear and conv2d layers only.
TEST(NetworkTest, LayerNormIsRefusedOnGpu) {
  ModelSetup setup;
  setup.network.layers = {Linear(8, Activation::kNone), {.type = LayerType::kLayerNorm}};
  const EnvSpec env = Env({DType::kF32, {4}}, 2);
  const auto network = MakeNetwork(setup, env);
  ASSERT_TRUE(network.ok());
  EXPECT_THAT(QNetworkSpecOf(setup, env, **network).status().message(),
              HasSubstr("\"layer_norm\" in network.layers is only supported on the CPU"));
}

}  // namespace
}  // namespace troop
