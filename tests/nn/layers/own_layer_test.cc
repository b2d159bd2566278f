// Own layers: registration, networks with them, errors of their factories, and the layer of
// examples/cpp_algorithm against plain loops and finite differences.
#include "nn/layers/own_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "examples/cpp_algorithm/gated_linear.h"
#include "nn/layers/layers.h"
#include "nn/models/q_network_spec.h"
#include "tests/nn/loaded_policy.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using testing::HasSubstr;

LayerConfig Own(const std::string& name, std::int64_t units = 8) {
  LayerConfig layer{.type = LayerType::kOwn, .units = units};
  layer.own_type = name;
  return layer;
}

ModelSetup SetupWith(std::vector<LayerConfig> layers) {
  ModelSetup setup;
  setup.network.layers = std::move(layers);
  return setup;
}

// Registers a layer once per process, as repeated tests need.
void Register(const std::string& name, LayerFactory factory) {
  if (IsRegisteredLayer(name)) return;
  const Status status = RegisterLayer(name, std::move(factory));
  ASSERT_TRUE(status.ok()) << status.ToString();
}

const EnvSpec kEnv = DiscreteEnv({DType::kF32, {5}}, 3);

std::string ErrorOf(const LayerConfig& layer) {
  const auto made = MakeNetwork(SetupWith({layer}), kEnv);
  EXPECT_FALSE(made.ok());
  return made.status().message();
}

// Two linear layers as one: a matrix of low rank. Equal to what it consists of.
Result<OwnLayer> MakeLowRank(const OwnLayerRequest& request) {
  const std::int64_t rank = request.options.Integer("rank", 2, Between(1, 64));
  const LayerConfig down{.units = rank, .activation = Activation::kNone};
  const LayerConfig up{.units = request.layer.units, .activation = request.layer.activation};
  std::vector<SequentialPart> parts;
  parts.push_back({"down", MakeLinear(request.in.elements(), rank)});
  parts.push_back({"up", MakeLinear(rank, up.units, up.activation)});
  return OwnLayer{.module = MakeSequential(std::move(parts)),
                  .equals = {{down, "down"}, {up, "up"}}};
}

// A module whose plan and parameters a test chooses.
class Odd final : public Module {
 public:
  Odd(std::vector<ParamSpec> params, TensorSpec out) : params_(std::move(params)), out_(out) {}
  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec>) const override { return Plan{.out = {out_}}; }
  std::unique_ptr<Packed> MakePacked(Precision) const override { return nullptr; }
  void Pack(std::span<const float>, Packed*) const override {}
  void Forward(const StepContext&, std::span<const ConstTensor>, std::span<const Tensor>,
               Cache) const override {}
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor>) const override {}

 private:
  const std::vector<ParamSpec> params_;
  const TensorSpec out_;
};

TEST(OwnLayerTest, InvalidNamesAreRefused) {
  const LayerFactory factory = MakeLowRank;
  EXPECT_THAT(RegisterLayer("Big", factory).message(), HasSubstr("not a name"));
  EXPECT_THAT(RegisterLayer("", factory).message(), HasSubstr("not a name"));
  EXPECT_THAT(RegisterLayer(std::string(65, 'a'), factory).message(), HasSubstr("at most 64"));
  for (const char* name : {"linear", "conv2d", "own"})
    EXPECT_THAT(RegisterLayer(name, factory).message(), HasSubstr("the name is built in")) << name;
  EXPECT_THAT(RegisterLayer("no_factory", nullptr).message(), HasSubstr("factory is empty"));
  EXPECT_FALSE(IsRegisteredLayer("no_factory"));
  Register("low_rank", factory);
  const Status twice = RegisterLayer("low_rank", factory);
  EXPECT_EQ(twice.code(), Code::kAlreadyExists);
  EXPECT_THAT(twice.message(), HasSubstr("registered by the program already"));
}

TEST(OwnLayerTest, UnknownTypeIsNamedWithTheKnownOnes) {
  Register("low_rank", MakeLowRank);
  EXPECT_THAT(ErrorOf(Own("low_runk")),
              testing::AllOf(HasSubstr("network.layers[0].type = \"low_runk\" is unknown"),
                             HasSubstr("linear, conv2d"), HasSubstr("low_rank"),
                             HasSubstr("learner.library")));
}

TEST(OwnLayerTest, MissingLibraryIsOneLine) {
  ModelSetup setup = SetupWith({Own("low_rank")});
  setup.library = "no/such.so";
  const auto made = MakeNetwork(setup, kEnv);
  EXPECT_EQ(made.status().code(), Code::kNotFound);
  EXPECT_THAT(made.status().message(), HasSubstr("learner.library: no/such.so: no such file"));
}

TEST(OwnLayerTest, OptionsReachTheFactoryAndUnknownOnesAreRefused) {
  Register("low_rank", MakeLowRank);
  LayerConfig layer = Own("low_rank", 6);
  layer.options = {{"rank", std::int64_t{3}}};
  const auto network = MakeNetwork(SetupWith({LinearLayer(4), layer}), kEnv);
  ASSERT_TRUE(network.ok()) << network.status().ToString();
  const auto shape = [&](const std::string& name) {
    const auto params = (*network)->params();
    const auto found = std::ranges::find(params, name, &ParamSpec::name);
    return found == params.end() ? Shape() : found->shape;
  };
  EXPECT_EQ(shape("layers.1.down.weight"), (Shape{3, 4}));
  EXPECT_EQ(shape("layers.1.up.weight"), (Shape{6, 3}));
  layer.options = {{"rank", 0.5}};
  EXPECT_THAT(ErrorOf(layer),
              HasSubstr("network.layers[0].options: rank = 0.5 is not an integer in the range"));
  layer.options = {{"renk", std::int64_t{3}}};
  EXPECT_THAT(ErrorOf(layer), HasSubstr("renk is an unknown option; the nearest is rank"));
}

TEST(OwnLayerTest, FactoryThatFailsOrThrowsIsAnError) {
  Register("fails", [](const OwnLayerRequest&) -> Result<OwnLayer> {
    return InvalidArgument("has no luck");
  });
  Register("throws", [](const OwnLayerRequest&) -> Result<OwnLayer> {
    throw std::runtime_error("a bad day");
  });
  Register("throws_a_number", [](const OwnLayerRequest&) -> Result<OwnLayer> { throw 7; });
  Register("makes_nothing", [](const OwnLayerRequest&) -> Result<OwnLayer> { return OwnLayer(); });
  EXPECT_EQ(ErrorOf(Own("fails")), "network.layers[0] (\"fails\"): has no luck");
  EXPECT_EQ(ErrorOf(Own("throws")),
            "network.layers[0] (\"throws\"): an exception was thrown: a bad day");
  EXPECT_THAT(ErrorOf(Own("throws_a_number")), HasSubstr("not a std::exception"));
  EXPECT_THAT(ErrorOf(Own("makes_nothing")), HasSubstr("made no module"));
}

TEST(OwnLayerTest, ModuleThatBreaksTheContractIsRefused) {
  std::vector<ParamSpec> params;
  TensorSpec out;
  static const std::vector<ParamSpec>* next_params = nullptr;
  static const TensorSpec* next_out = nullptr;
  next_params = &params, next_out = &out;
  Register("odd", [](const OwnLayerRequest&) -> Result<OwnLayer> {
    return OwnLayer{.module = std::make_unique<Odd>(*next_params, *next_out)};
  });
  const auto refused = [&](std::vector<ParamSpec> p, TensorSpec o, const std::string& part) {
    params = std::move(p), out = std::move(o);
    EXPECT_THAT(ErrorOf(Own("odd")), HasSubstr(part));
  };
  const TensorSpec one{DType::kF32, {1, 4}};
  refused({}, one, "the output for f32[2, 5] is f32[1, 4], must be f32[2");
  refused({}, {DType::kU8, {1, 4}}, "the output for f32[1, 5] is u8[1, 4]");
  refused({{"a", {3}, 8}}, one, "parameter \"a\": offset 8 must be a multiple of 16, at least 0");
  refused({{"a", {17}, 0}, {"b", {2}, 16}}, one, "offset 16 must be a multiple of 16, at least 17");
  refused({{"a", {1}, 0}, {"a", {2}, 16}}, one, "the name is empty or taken");
  refused({{"", {1}, 0}}, one, "the name is empty or taken");
}

// On a GPU the networks are separate classes, which have the built-in layers only.
TEST(OwnLayerTest, GpuNetworkIsRefused) {
  Register("gated_linear", MakeGatedLinear);
  const ModelSetup setup = SetupWith({Own("gated_linear")});
  const auto network = MakeNetwork(setup, kEnv);
  ASSERT_TRUE(network.ok());
  const auto spec = QNetworkSpecOf(setup, kEnv, **network);
  EXPECT_THAT(spec.status().message(), HasSubstr("own layer \"gated_linear\""));
  EXPECT_THAT(spec.status().message(), HasSubstr("only supported on the CPU"));
}

// The forward pass of the example, in f64.
TEST(GatedLinearTest, ForwardEqualsPlainLoops) {
  OptionReader options("", {});
  const LayerConfig config = Own("gated_linear", 7);
  const auto layer = MakeGatedLinear({config, {5}, options});
  ASSERT_TRUE(layer.ok());
  test::ModuleBench bench(*layer->module, {DType::kF32, {3, 5}}, Precision::kF32);
  for (const bool keep : {false, true}) {
    bench.Loss(keep);
    const auto params = layer->module->params();
    const auto at = [&](int p, std::int64_t i) {
      return double(bench.value[std::size_t(params[std::size_t(p)].offset + i)]);
    };
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t u = 0; u < 7; ++u) {
        double linear = at(1, u), gate = at(3, u);
        for (std::int64_t i = 0; i < 5; ++i) {
          linear += at(0, u * 5 + i) * double(bench.input.data<float>()[b * 5 + i]);
          gate += at(2, u * 5 + i) * double(bench.input.data<float>()[b * 5 + i]);
        }
        EXPECT_NEAR(bench.output.data<float>()[b * 7 + u], linear / (1 + std::exp(-gate)), 1e-6);
      }
    }
  }
}

TEST(GatedLinearTest, BackwardEqualsFiniteDifferences) {
  OptionReader options("", {});
  const LayerConfig config = Own("gated_linear", 7);
  const auto layer = MakeGatedLinear({config, {5}, options});
  ASSERT_TRUE(layer.ok());
  test::CheckGradients(*layer->module, {DType::kF32, {6, 5}});
}

// Within a network: the parts above and below get their gradients through it.
TEST(GatedLinearTest, NetworkTrainsThroughIt) {
  Register("gated_linear", MakeGatedLinear);
  const auto network = MakeNetwork(
      SetupWith({LinearLayer(9, Activation::kTanh), Own("gated_linear", 6), LinearLayer(5)}), kEnv);
  ASSERT_TRUE(network.ok()) << network.status().ToString();
  test::CheckGradients(**network, {DType::kF32, {4, 5}}, false);
}

TEST(OwnLayerTest, DescribedLayerIsExportedAsWhatItEquals) {
  Register("low_rank", MakeLowRank);
  const PolicyCase c{"", SetupWith({Own("low_rank", 12), LinearLayer(9)}), kEnv};
  const PolicyBench bench(c.setup, c.env);
  ExpectEqualsModule(c, bench, bench.File());
}

TEST(OwnLayerTest, LayerWithoutDescriptionStaysInTroop) {
  Register("gated_linear", MakeGatedLinear);
  const ModelSetup setup = SetupWith({LinearLayer(4), Own("gated_linear")});
  const auto policy = DescribePolicy(setup, kEnv);
  EXPECT_EQ(policy.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(policy.status().message(), HasSubstr("network.layers[1] (\"gated_linear\")"));
  const auto encoded = EncodedPolicyOf(setup, kEnv);
  ASSERT_TRUE(encoded.ok()) << encoded.status().ToString();
  EXPECT_EQ(*encoded, "");
}

TEST(OwnLayerTest, DescriptionThatDoesNotFitIsAnError) {
  const auto describe = [](std::vector<OwnLayer::Part> equals) {
    static std::vector<OwnLayer::Part> next;
    next = std::move(equals);
    Register("misdescribed", [](const OwnLayerRequest& request) -> Result<OwnLayer> {
      return OwnLayer{.module = MakeLinear(request.in.elements(), 8), .equals = next};
    });
    return EncodedPolicyOf(SetupWith({Own("misdescribed")}), kEnv).status().message();
  };
  EXPECT_THAT(describe({{LinearLayer(8), "other"}}),
              HasSubstr("a parameter \"other.weight\" [8, 5], but the module has none"));
  EXPECT_THAT(describe({{LinearLayer(7), ""}}), HasSubstr("describes itself by a parameter"));
  EXPECT_THAT(describe({{LinearLayer(0), ""}}), HasSubstr("invalid for the input [5]"));
  EXPECT_THAT(describe({{ConvLayer(2, 3, 1), ""}}), HasSubstr("invalid for the input [5]"));
  EXPECT_THAT(describe({{PoolLayer(2, 1, 0), ""}}), HasSubstr("\"max_pool\" that is invalid"));
}

// A block under another name; its kernel of 3 is the default of the request's layer.
TEST(OwnLayerTest, ResidualBlockIsExportedWithBothConvolutions) {
  static std::string tensors;
  Register("own_block", [](const OwnLayerRequest& request) -> Result<OwnLayer> {
    const Shape& in = request.in;
    std::vector<SequentialPart> parts;
    parts.push_back({"block", MakeResidual({in[0], in[1], in[2], 3, Activation::kRelu})});
    return OwnLayer{.module = MakeSequential(std::move(parts)),
                    .equals = {{ResidualLayer(Activation::kRelu), tensors}}};
  });
  const PolicyCase c{"", SetupWith({Own("own_block"), LinearLayer(9)}),
                     DiscreteEnv({DType::kF32, {4, 3, 2}}, 3)};
  tensors = "block";
  const PolicyBench bench(c.setup, c.env);
  ExpectEqualsModule(c, bench, bench.File());
  tensors = "other";
  EXPECT_THAT(
      EncodedPolicyOf(c.setup, c.env).status().message(),
      HasSubstr("a parameter \"other.conv0.weight\" [2, 3, 3, 2], but the module has none"));
}

}  // namespace
}  // namespace troop
