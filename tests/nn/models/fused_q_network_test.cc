#include "nn/models/fused_q_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/base/philox.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"

namespace troop {
namespace {

LayerConfig LinearLayer(std::int64_t units, Activation activation = Activation::kRelu) {
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  layer.activation = activation;
  return layer;
}
LayerConfig ConvLayer(std::int64_t filters, std::int64_t kernel, std::int64_t stride = 1) {
  LayerConfig layer;
  layer.type = LayerType::kConv2d;
  layer.filters = filters;
  layer.kernel = kernel;
  layer.stride = stride;
  return layer;
}

// Builds the same network from the generic layers.
std::unique_ptr<Module> General(const FusedNetworkSpec& spec) {
  std::vector<SequentialPart> parts;
  parts.push_back({"input", MakeInput(spec.observation_scale)});
  Shape shape = spec.observation.shape;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerConfig& layer = spec.layers[i];
    const std::string name = "layers." + std::to_string(i);
    if (layer.type == LayerType::kConv2d) {
      parts.push_back({name, MakeConv2d({shape[0], shape[1], shape[2], layer.filters, layer.kernel,
                                         layer.stride, layer.activation})});
      shape = {(shape[0] - layer.kernel) / layer.stride + 1,
               (shape[1] - layer.kernel) / layer.stride + 1, layer.filters};
      continue;
    }
    parts.push_back({name, MakeLinear(shape.elements(), layer.units, layer.activation)});
    shape = {layer.units};
  }
  const std::int64_t features = shape.elements();
  parts.push_back({"head", spec.dueling
                               ? MakeDuelingHead(features, spec.dueling_units, spec.actions)
                               : MakeLinear(features, spec.actions, Activation::kNone)});
  return MakeSequential(std::move(parts));
}

struct Outcome {
  std::vector<float> q, inference, gradient;
};

Outcome Evaluate(const Module& module, const Tensor& observation, std::span<const float> value,
                 bool packed) {
  const TensorSpec spec = observation.spec();
  const Plan plan = std::move(module.MakePlan({&spec, 1})).value();
  MutableBuffer cache(plan.cache_bytes), workspace(plan.workspace_bytes);
  const auto pack = module.MakePacked(Precision::kF32);
  module.Pack(value, pack.get());
  Outcome r;
  r.gradient.assign(value.size(), 0);
  const StepContext context{.value = value,
                            .packed = packed ? pack.get() : nullptr,
                            .gradient = r.gradient,
                            .workspace = workspace.bytes()};
  const Tensor q(DType::kF32, plan.out[0].shape), dq(DType::kF32, plan.out[0].shape);
  for (std::int64_t i = 0; i < dq.elements(); ++i) dq.data<float>()[i] = std::sin(float(i) + 1);
  const ConstTensor in(observation), dout(dq);
  module.Forward(context, {&in, 1}, {&q, 1}, {});
  r.inference.assign(q.as<float>().begin(), q.as<float>().end());
  module.Forward(context, {&in, 1}, {&q, 1}, cache.bytes());
  r.q.assign(q.as<float>().begin(), q.as<float>().end());
  const Tensor din;
  module.Backward(context, {&in, 1}, {&dout, 1}, cache.bytes(), {&din, 1});
  return r;
}

std::vector<FusedNetworkSpec> Specs() {
  const TensorSpec vector{DType::kF32, {4}}, image{DType::kU8, {10, 10, 4}};
  return {
      {vector, 1, {LinearLayer(64), LinearLayer(64)}, false, 0, 2},
      {vector, 1, {LinearLayer(64), LinearLayer(64)}, true, 0, 2},
      {vector, 0.5f, {LinearLayer(33, Activation::kTanh)}, true, 20, 5},
      {vector, 1, {}, true, 0, 3},
      {image, 1, {ConvLayer(16, 3), LinearLayer(128)}, false, 0, 6},
      {image, 1, {ConvLayer(16, 3), LinearLayer(128)}, true, 0, 6},
      {{DType::kF32, {7, 8, 3}},
       1,
       {ConvLayer(32, 3, 2), LinearLayer(30, Activation::kNone)},
       true,
       12,
       4},
      {{DType::kF32, {3, 5}}, 1, {LinearLayer(20)}, false, 0, 4},
  };
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 3e-5 * (1 + std::abs(b[i]))) << what << " " << i;
  }
}

TEST(SmallNetworkTest, MatchesGeneralNetwork) {
  for (const FusedNetworkSpec& spec : Specs()) {
    const auto general = General(spec);
    const auto small = MakeFusedNetwork(spec, general->params());
    ASSERT_NE(small, nullptr);
    std::vector<float> value(std::size_t(ParameterCount(*general)));
    InitParameters(*general, 5, value);
    for (std::int64_t batch : {1, 9}) {
      const Tensor observation(spec.observation.dtype, spec.observation.shape.Prepend(batch));
      Rng rng({3, Purpose::kTest});
      if (spec.observation.dtype == DType::kU8) {
        for (std::uint8_t& x : observation.as<std::uint8_t>()) x = std::uint8_t(rng.Below(3));
      } else {
        for (float& x : observation.as<float>()) x = float(rng.Normal());
      }
      const Outcome want = Evaluate(*general, observation, value, true);
      for (bool packed : {true, false}) {
        const Outcome got = Evaluate(*small, observation, value, packed);
        ExpectNear(got.q, want.q, "q");
        ExpectNear(got.inference, want.q, "q without a cache");
        ExpectNear(got.gradient, want.gradient, "gradient");
      }
    }
  }
}

TEST(SmallNetworkTest, ParametersMatchGeneralNetwork) {
  for (const FusedNetworkSpec& spec : Specs()) {
    const auto general = General(spec);
    const auto small = MakeFusedNetwork(spec, general->params());
    ASSERT_EQ(small->params().size(), general->params().size());
    EXPECT_EQ(ParameterCount(*small), ParameterCount(*general));
    for (std::size_t i = 0; i < small->params().size(); ++i) {
      EXPECT_EQ(small->params()[i].name, general->params()[i].name);
      EXPECT_EQ(small->params()[i].offset, general->params()[i].offset);
    }
  }
}

TEST(SmallNetworkTest, DeclinesUnsupportedNetworks) {
  const TensorSpec vector{DType::kF32, {4}}, image{DType::kU8, {10, 10, 4}};
  const std::vector<FusedNetworkSpec> others = {
      {{DType::kU8, {84, 84, 4}}, 1, {ConvLayer(32, 8, 4), LinearLayer(512)}, false, 0, 6},
      {image, 1, {ConvLayer(16, 3), ConvLayer(16, 3), LinearLayer(32)}, false, 0, 6},
      {image, 1, {LinearLayer(32), ConvLayer(16, 3)}, false, 0, 6},
      {image, 1, {ConvLayer(24, 3), LinearLayer(32)}, false, 0, 6},
      {vector, 1, {LinearLayer(1000), LinearLayer(1000)}, false, 0, 2},
      {vector, 1, std::vector<LayerConfig>(7, LinearLayer(8)), false, 0, 2},
      {{DType::kF64, {4}}, 1, {LinearLayer(8)}, false, 0, 2},
  };
  for (std::size_t i = 0; i < others.size(); ++i) {
    // A layer that general networks can't have either comes without parameters.
    const bool possible = others[i].observation.dtype != DType::kF64 && i != 2;
    const auto general = possible ? General(others[i]) : nullptr;
    const auto params = general ? general->params() : std::span<const ParamSpec>();
    EXPECT_EQ(MakeFusedNetwork(others[i], params), nullptr) << i;
  }
}

TEST(SmallNetworkTest, RejectsObservationOfWrongShape) {
  const FusedNetworkSpec spec = Specs()[0];
  const auto small = MakeFusedNetwork(spec, General(spec)->params());
  for (const TensorSpec& in : {TensorSpec{DType::kF32, {2, 5}}, TensorSpec{DType::kU8, {2, 4}},
                               TensorSpec{DType::kF32, {4}}, TensorSpec{DType::kF32, {}}}) {
    const auto plan = small->MakePlan({&in, 1});
    ASSERT_FALSE(plan.ok()) << in.ToString();
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace troop
