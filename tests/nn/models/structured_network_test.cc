// Networks of observations with parts and action masks, against plain loops in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "tests/nn/f64_reference.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using test::Row;
using test::Values;
using testing::HasSubstr;

constexpr std::int64_t kBatch = 5, kActions = 4;

// An image, numbers and a mask between them, so that no offset is 0 by chance.
EnvSpec GameEnv(DType dtype = DType::kF32) {
  EnvSpec env = DiscreteEnv({dtype, {5 * 4 * 2 + kActions + 3}}, kActions);
  env.parts = {{.name = "image", .shape = {5, 4, 2}, .scale = 0.5F},
               {.name = "action_mask", .shape = {kActions}, .action_mask = true},
               {.name = "goal", .shape = {3}}};
  return env;
}

struct StructuredCase {
  std::string name;
  ModelSetup setup;
  DType dtype = DType::kF32;
};
void PrintTo(const StructuredCase& c, std::ostream* out) { *out << c.name; }

std::vector<StructuredCase> Cases() {
  ModelSetup dqn;
  dqn.network.layers = {ConvLayer(6, 3, 1), LinearLayer(7, Activation::kTanh)};
  dqn.network.dueling = false;
  ModelSetup stacked = dqn, ppo = dqn, flat = dqn;
  stacked.frame_stack = 3;
  ppo.algorithm = AlgorithmKind::kPpo;
  flat.network.layers = {LinearLayer(9, Activation::kTanh), LinearLayer(7, Activation::kTanh)};
  return {{"dqn", dqn},
          {"dqn_u8", dqn, DType::kU8},
          {"stacked", stacked},
          {"ppo", ppo},
          {"flat", flat}};
}

// Observations whose masks allow some actions in each row but the last, which allows none.
Tensor Observations(const StructuredCase& c) {
  const EnvSpec env = GameEnv(c.dtype);
  const TensorSpec in = NetworkInput(c.setup, env);
  const std::int64_t width = env.observation.shape.elements(), stack = c.setup.frame_stack;
  const Tensor rows(c.dtype, in.shape.Prepend(kBatch));
  Rng rng({3, Purpose::kTest});
  for (std::int64_t i = 0; i < rows.elements(); ++i) {
    const std::int64_t column = i % width, frame = i / width;
    float value = c.dtype == DType::kU8 ? float(rng.Below(5)) : float(rng.Normal());
    if (column >= 40 && column < 44) {
      const bool last = frame / stack == kBatch - 1, newest = frame % stack == stack - 1;
      // Masks of older frames differ, and must not matter.
      value = float((frame / stack + column) % 3 != 0) * float(!last);
      if (!newest) value = 1 - value;
    }
    if (c.dtype == DType::kU8) {
      rows.as<std::uint8_t>()[std::size_t(i)] = std::uint8_t(value);
    } else {
      rows.as<float>()[std::size_t(i)] = value;
    }
  }
  return rows;
}

// A case's network and its outputs by loops.
class StructuredNetwork {
 public:
  explicit StructuredNetwork(const StructuredCase& c)
      : case_(c), env_(GameEnv(c.dtype)), network_(*MakeNetwork(c.setup, env_)) {
    value_.resize(std::size_t(ParameterCount(*network_)));
    InitParameters(*network_, 7, value_);
    observations_ = Observations(c);
  }
  const Module& module() const { return *network_; }
  std::span<const float> value() const { return value_; }
  const Tensor& observations() const { return observations_; }

  bool Allowed(std::int64_t b, std::int64_t action) const {
    bool any = false;
    for (std::int64_t a = 0; a < kActions; ++a) any |= Newest(b, 40 + a) != 0;
    return !any || Newest(b, 40 + action) != 0;
  }

  // Outputs of row b, without the mask.
  Row Reference(std::int64_t b, std::span<const double> value) const {
    const Values values(*network_, value);
    const bool flat = case_.setup.network.layers[0].type == LayerType::kLinear;
    Row x = flat ? Joined(b) : Convolved(b, values);
    if (flat) x = Tanh(test::Linear(values, "layers.0", x));
    x = Tanh(test::Linear(values, "layers.1", x));
    Row out = test::Linear(values, "head", x);
    if (IsActorCritic(case_.setup.algorithm))
      out.push_back(test::Linear(values, "head.value", x)[0]);
    return out;
  }

 private:
  double At(std::int64_t b, std::int64_t frame, std::int64_t column) const {
    const std::int64_t width = env_.observation.shape.elements();
    const auto i = std::size_t((b * case_.setup.frame_stack + frame) * width + column);
    return case_.dtype == DType::kU8 ? double(observations_.as<std::uint8_t>()[i])
                                     : double(observations_.as<float>()[i]);
  }
  double Newest(std::int64_t b, std::int64_t column) const {
    return At(b, case_.setup.frame_stack - 1, column);
  }
  // Pixel (y, x), channel c of the image; the channels of the oldest frame come first.
  double Pixel(std::int64_t b, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return 0.5 * At(b, c / 2, (y * 4 + x) * 2 + c % 2);
  }
  Row Goal(std::int64_t b) const {
    Row goal;
    for (std::int64_t s = 0; s < case_.setup.frame_stack; ++s) {
      for (std::int64_t i = 0; i < 3; ++i) goal.push_back(At(b, s, 44 + i));
    }
    return goal;
  }
  Row Joined(std::int64_t b) const {
    Row all;
    for (std::int64_t i = 0; i < 40; ++i) all.push_back(Pixel(b, i / 8, i / 2 % 4, i % 2));
    for (const double x : Goal(b)) all.push_back(x);
    return all;
  }
  // The image after a convolution of 3 x 3, [3, 2, 6], then the goal.
  Row Convolved(std::int64_t b, const Values& values) const {
    const std::int64_t depth = 2 * case_.setup.frame_stack;
    const double* const weight = values["input.parts.image.layers.0.weight"];
    const double* const bias = values["input.parts.image.layers.0.bias"];
    Row all;
    for (std::int64_t at = 0; at < 3 * 2 * 6; ++at) {
      const std::int64_t filter = at % 6, x = at / 6 % 2, y = at / 12;
      double sum = bias[filter];
      for (std::int64_t k = 0; k < 9 * depth; ++k) {
        sum += weight[filter * 9 * depth + k] *
               Pixel(b, y + k / depth / 3, x + k / depth % 3, k % depth);
      }
      all.push_back(std::max(sum, 0.0));
    }
    for (const double g : Goal(b)) all.push_back(g);
    return all;
  }
  static Row Tanh(Row x) {
    for (double& v : x) v = std::tanh(v);
    return x;
  }

  const StructuredCase case_;
  const EnvSpec env_;
  const std::unique_ptr<Module> network_;
  std::vector<float> value_;
  Tensor observations_;
};

class StructuredNetworkTest : public testing::TestWithParam<StructuredCase> {};
INSTANTIATE_TEST_SUITE_P(All, StructuredNetworkTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Outputs with a cache and without one, and the gradient of Σ weight · output over the outputs that
// are not masked, although the masked ones have a gradient as well.
TEST_P(StructuredNetworkTest, EqualsLoops) {
  const StructuredNetwork network(GetParam());
  const Module& module = network.module();
  const ConstTensor in(network.observations());
  const Plan plan = *module.MakePlan({&in.spec(), 1});
  MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  MutableBuffer cache = MutableBuffer::Zeros(plan.cache_bytes);
  const Tensor out(DType::kF32, plan.out[0].shape);
  std::vector<float> gradient(network.value().size());
  const StepContext context{
      .value = network.value(), .gradient = gradient, .workspace = workspace.bytes()};
  const auto columns = std::size_t(out.dim(1));
  const std::vector<double> value(network.value().begin(), network.value().end());
  int masked = 0;
  for (const bool keep : {false, true}) {
    module.Forward(context, {&in, 1}, {&out, 1}, keep ? cache.bytes() : Cache());
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const Row want = network.Reference(b, value);
      ASSERT_EQ(want.size(), columns);
      for (std::size_t a = 0; a < columns; ++a) {
        const float got = out.as<float>()[std::size_t(b) * columns + a];
        if (a < std::size_t(kActions) && !network.Allowed(b, std::int64_t(a))) {
          EXPECT_EQ(got, kMaskedOutput) << b << ", " << a;
          ++masked;
        } else {
          EXPECT_NEAR(got, want[a], 1e-5) << b << ", " << a;
        }
      }
    }
  }
  EXPECT_GE(masked, 10);

  const Tensor dout(DType::kF32, out.shape());
  for (std::size_t i = 0; i < std::size_t(dout.elements()); ++i)
    dout.as<float>()[i] = test::LossWeight(i);
  const ConstTensor given(dout);
  module.Backward(context, {&in, 1}, {&given, 1}, cache.bytes(), {});
  const auto loss = [&](std::span<const double> at) {
    double sum = 0;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const Row row = network.Reference(b, at);
      for (std::size_t a = 0; a < columns; ++a) {
        if (a < std::size_t(kActions) && !network.Allowed(b, std::int64_t(a))) continue;
        sum += double(test::LossWeight(std::size_t(b) * columns + a)) * row[a];
      }
    }
    return sum;
  };
  test::ExpectSlopes(module, network.value(), gradient, loss, 1e-4);
  // The caller's gradient is unchanged.
  EXPECT_EQ(dout.as<float>()[0], test::LossWeight(0));
}

TEST_P(StructuredNetworkTest, Bf16StaysWithinRoundingError) {
  const StructuredNetwork network(GetParam());
  const ConstTensor in(network.observations());
  const Plan plan = *network.module().MakePlan({&in.spec(), 1});
  MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  std::vector<std::vector<float>> results;
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    const auto packed = network.module().MakePacked(precision);
    network.module().Pack(network.value(), packed.get());
    const Tensor out(DType::kF32, plan.out[0].shape);
    network.module().Forward(
        {.value = network.value(), .packed = packed.get(), .workspace = workspace.bytes()},
        {&in, 1}, {&out, 1}, {});
    results.emplace_back(out.as<float>().begin(), out.as<float>().end());
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_NEAR(results[0][i], results[1][i], 0.05) << i;
}

// An image and a mask: the layers take the image as they take a plain one.
TEST(StructuredNetworkNamesTest, SinglePartKeepsPlainNames) {
  EnvSpec env = GameEnv();
  env.parts.pop_back();
  env.observation.shape = {44};
  ModelSetup setup;
  setup.network.layers = {ConvLayer(6, 3, 1), LinearLayer(7)};
  setup.network.dueling = false;
  const auto names = [&](const EnvSpec& spec) {
    std::vector<std::string> found;
    const auto network = MakeNetwork(setup, spec);
    EXPECT_TRUE(network.ok()) << network.status().message();
    for (const ParamSpec& p : (*network)->params()) found.push_back(p.name);
    return found;
  };
  EXPECT_EQ(names(env), names(DiscreteEnv({DType::kF32, {5, 4, 2}}, kActions)));
}

// Quantiles of a masked action are all masked, so their mean is.
TEST(StructuredNetworkNamesTest, QuantilesAreMaskedTogether) {
  ModelSetup setup;
  setup.critic = CriticKind::kQuantile;
  setup.atoms = 3;
  const EnvSpec env = GameEnv();
  const auto network = MakeNetwork(setup, env);
  ASSERT_TRUE(network.ok()) << network.status().message();
  const Tensor in(DType::kF32, {1, 47});
  in.as<float>()[42] = 1;
  const TensorSpec spec = in.spec();
  const Plan plan = *(*network)->MakePlan({&spec, 1});
  MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  std::vector<float> value(std::size_t(ParameterCount(**network)));
  InitParameters(**network, 1, value);
  const Tensor out(DType::kF32, plan.out[0].shape);
  const ConstTensor x(in);
  (*network)->Forward({.value = value, .workspace = workspace.bytes()}, {&x, 1}, {&out, 1}, {});
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(IsMasked(out.as<float>()[i]), i / 3 != 2) << i;
}

// The statistics of a normalized observation cover all of it; the image's scale does not apply.
TEST(StructuredNetworkNamesTest, NormalizesBeforeSelection) {
  ModelSetup setup;
  setup.network.layers = {LinearLayer(7)};
  setup.network.normalize_observations = true;
  const PolicyBench bench(setup, GameEnv());
  int found = 0;
  for (const ParamSpec& spec : bench.network().params()) {
    if (spec.name != "input.observation.mean") continue;
    ++found;
    EXPECT_EQ(spec.shape, Shape{47});
  }
  EXPECT_EQ(found, 1);
}

TEST(StructuredNetworkErrorTest, NamesWhatDoesNotFit) {
  const auto says = [](const EnvSpec& env, const auto& change) {
    ModelSetup setup;
    change(&setup);
    return MakeNetwork(setup, env).status().message();
  };
  EnvSpec channels_first = GameEnv();
  channels_first.parts[0].shape = {2, 84, 84};
  channels_first.observation.shape = {2 * 84 * 84 + 7};
  EXPECT_THAT(says(channels_first, [](ModelSetup* s) { s->network.layers = {ConvLayer(6, 3, 1)}; }),
              HasSubstr("image [2, 84, 84] scaled by 0.5"));
  EXPECT_THAT(says(GameEnv(), [](ModelSetup* s) { s->network.layers = {ConvLayer(6, 5, 1)}; }),
              HasSubstr("part image: network.layers[0].kernel = 5 is larger"));
  EXPECT_THAT(says(GameEnv(), [](ModelSetup* s) { s->network.one_hot = 3; }),
              HasSubstr("network.one_hot: test has observations with several parts"));
  EXPECT_THAT(says(GameEnv(), [](ModelSetup* s) { s->critic = CriticKind::kCategorical; }),
              HasSubstr("learner.critic = \"categorical\" has no value for an action"));
}

}  // namespace
}  // namespace troop
