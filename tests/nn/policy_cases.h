#pragma once

// Networks of agents as they are exported: their outputs by Troop's modules, and their files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"
#include "nn/models/model.h"
#include "nn/models/value_head.h"
#include "tests/nn/policy_loops.h"

namespace troop {

inline LayerConfig LinearLayer(std::int64_t units, Activation activation = Activation::kRelu) {
  return {.type = LayerType::kLinear, .units = units, .activation = activation};
}
inline LayerConfig ConvLayer(std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  return {.type = LayerType::kConv2d, .filters = filters, .kernel = kernel, .stride = stride};
}

inline LayerConfig PaddedConvLayer(std::int64_t filters, std::int64_t kernel, std::int64_t stride,
                                   std::int64_t padding) {
  LayerConfig layer = ConvLayer(filters, kernel, stride);
  layer.padding = padding;
  return layer;
}
inline LayerConfig PoolLayer(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {.type = LayerType::kMaxPool, .kernel = kernel, .stride = stride, .padding = padding};
}
inline LayerConfig ResidualLayer(Activation activation, std::int64_t kernel = 3) {
  return {.type = LayerType::kResidual, .kernel = kernel, .activation = activation};
}

struct PolicyCase {
  std::string name;
  ModelSetup setup;
  EnvSpec env;
};
// Names of tests show the case, not its bytes.
inline void PrintTo(const PolicyCase& c, std::ostream* out) { *out << c.name; }

inline EnvSpec DiscreteEnv(const TensorSpec& observation, std::int64_t actions, float scale = 1) {
  return {.id = "test",
          .observation = observation,
          .observation_scale = scale,
          .action = {.count = actions}};
}

// An environment whose observations consist of these parts; a mask has one element per action.
inline EnvSpec PartsEnv(DType dtype, std::int64_t actions, std::vector<ObservationPart> parts) {
  EnvSpec env = DiscreteEnv({dtype, {0}}, actions);
  std::int64_t elements = 0;
  for (ObservationPart& part : parts) {
    if (part.action_mask) part.shape = {actions};
    elements += part.shape.elements();
  }
  env.observation.shape = {elements};
  env.parts = std::move(parts);
  return env;
}
inline ObservationPart MaskPart() { return {.name = "action_mask", .action_mask = true}; }

// Observations of several parts, with masks at different places, and images of different sizes.
inline void AddPartsCases(std::vector<PolicyCase>* cases) {
  const auto add = [&](const char* name, const EnvSpec& env, const auto& change) {
    ModelSetup setup;
    setup.network.dueling = false;
    change(&setup);
    cases->push_back({name, setup, env});
  };
  const ObservationPart image{.name = "image", .shape = {5, 4, 2}, .scale = 0.5f};
  const ObservationPart goal{.name = "goal", .shape = {3}};
  add("parts", PartsEnv(DType::kF32, 4, {image, MaskPart(), goal}), [](ModelSetup* s) {
    s->network.layers = {ConvLayer(6, 3, 1), LinearLayer(7, Activation::kTanh)};
  });
  const float pixel = 1.0f / 255;
  const EnvSpec pictures = PartsEnv(DType::kU8, 3,
                                    {MaskPart(),
                                     {.name = "left", .shape = {7, 6, 1}, .scale = pixel},
                                     {.name = "lamp", .shape = {2}},
                                     {.name = "right", .shape = {6, 9, 3}, .scale = pixel}});
  add("parts_stack", pictures, [](ModelSetup* s) {
    s->frame_stack = 3;
    s->network.layers = {PaddedConvLayer(6, 3, 2, 1),
                         {.type = LayerType::kLayerNorm},
                         ResidualLayer(Activation::kRelu),
                         PoolLayer(2, 1, 1),
                         LinearLayer(12)};
  });
  add("parts_flat",
      PartsEnv(DType::kF32, 7, {{.name = "board", .shape = {6, 7}}, goal, MaskPart()}),
      [](ModelSetup* s) {
        s->critic = CriticKind::kQuantile;
        s->atoms = 5;
        s->network.layers = {LinearLayer(9, Activation::kTanh)};
      });
  add("parts_normalized", PartsEnv(DType::kF32, 3, {goal, MaskPart(), image}), [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kPpo;
    s->observation_clip = 1.5;
    s->frame_stack = 2;
    s->network.normalize_observations = true;
    s->network.layers = {LinearLayer(11)};
    s->network.critic_layers = {LinearLayer(8)};
  });
  add("one_image_and_mask", PartsEnv(DType::kU8, 5, {image, MaskPart()}), [](ModelSetup* s) {
    s->frame_stack = 2;
    s->network.layers = {PaddedConvLayer(6, 3, 1, 1), LinearLayer(9)};
  });
  add("numbers_and_mask", PartsEnv(DType::kF32, 6, {MaskPart(), {.name = "state", .shape = {4}}}),
      [](ModelSetup* s) { s->network.dueling = true; });
  EnvSpec continuous = PartsEnv(DType::kF32, 0, {goal, image});
  continuous.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  add("parts_continuous", continuous, [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kTd3;
    s->network.layers = {ConvLayer(6, 3, 1), LinearLayer(7)};
  });
}

// Recurrent layers: one of each, and several with layers of other kinds around them.
inline void AddRecurrentCases(std::vector<PolicyCase>* cases) {
  const auto add = [&](const char* name, const EnvSpec& env, const auto& change) {
    ModelSetup setup;
    setup.algorithm = AlgorithmKind::kPpo;
    change(&setup);
    cases->push_back({name, setup, env});
  };
  const LayerConfig lstm{.type = LayerType::kLstm, .units = 11};
  const LayerConfig gru{.type = LayerType::kGru, .units = 7};
  const TensorSpec vector{DType::kF32, {5}};
  add("lstm", DiscreteEnv(vector, 3), [&](ModelSetup* s) {
    s->network.layers = {LinearLayer(9), lstm};
  });
  add("gru", DiscreteEnv(vector, 3), [&](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kR2d2;
    s->network.dueling = false;
    s->network.layers = {gru, LinearLayer(9)};
  });
  add("two_recurrent", DiscreteEnv({DType::kU8, {7, 6, 2}}, 4, 1.0f / 255), [&](ModelSetup* s) {
    s->network.layers = {ConvLayer(6, 3, 2), gru, LinearLayer(8, Activation::kTanh), lstm};
  });
  EnvSpec continuous = DiscreteEnv(vector, 0);
  continuous.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  add("lstm_continuous", continuous, [&](ModelSetup* s) {
    s->network.normalize_observations = true;
    s->network.layers = {LinearLayer(9), lstm};
    s->network.critic_layers = {LinearLayer(8)};
  });
}

// Every input layer, layer, head and value form.
inline std::vector<PolicyCase> PolicyCases() {
  const TensorSpec vector{DType::kF32, {5}};
  std::vector<PolicyCase> cases;
  const auto add = [&](const char* name, const EnvSpec& env, const auto& change) {
    ModelSetup setup;
    change(&setup);
    cases.push_back({name, setup, env});
  };
  add("default", DiscreteEnv(vector, 3), [](ModelSetup*) {});
  add("tanh", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->network.layers = {LinearLayer(33, Activation::kTanh), LinearLayer(17, Activation::kNone)};
    s->network.dueling = false;
  });
  add("dueling_units", DiscreteEnv(vector, 18, 0.25f), [](ModelSetup* s) {
    s->network.layers = {LinearLayer(40)};
    s->network.dueling_units = 24;
  });
  add("categorical", DiscreteEnv(vector, 4), [](ModelSetup* s) {
    s->critic = CriticKind::kCategorical;
    s->atoms = 11;
    s->v_min = -3, s->v_max = 7;
  });
  add("quantile", DiscreteEnv(vector, 4), [](ModelSetup* s) {
    s->critic = CriticKind::kQuantile;
    s->atoms = 7;
    s->network.dueling = false;
  });
  add("normalized_stack", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->network.normalize_observations = true;
    s->frame_stack = 3;
  });
  add("one_hot", DiscreteEnv({DType::kI32, {2, 3}}, 3),
      [](ModelSetup* s) { s->network.one_hot = 5; });
  add("stacked_pictures", DiscreteEnv({DType::kU8, {20, 18}}, 6, 1.0f / 255), [](ModelSetup* s) {
    s->frame_stack = 4;
    s->network.layers = {ConvLayer(8, 5, 2), ConvLayer(20, 3, 1), LinearLayer(32)};
  });
  add("color_pictures", DiscreteEnv({DType::kU8, {11, 9, 3}}, 2, 1.0f / 255), [](ModelSetup* s) {
    s->frame_stack = 2;
    s->network.layers = {ConvLayer(16, 3, 2), LinearLayer(32)};
  });
  add("planes", DiscreteEnv({DType::kF32, {10, 10, 4}}, 5), [](ModelSetup* s) {
    s->network.layers = {ConvLayer(16, 3, 1), LinearLayer(64)};
  });
  add("gray", DiscreteEnv({DType::kU8, {10, 10}}, 5, 1.0f / 255),
      [](ModelSetup* s) { s->network.layers = {ConvLayer(4, 4, 3)}; });
  add("clipped_stack", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->observation_clip = 0.75;
    s->frame_stack = 2;
  });
  add("clipped_normalized", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->observation_clip = 1.5;
    s->network.normalize_observations = true;
  });
  add("noisy", DiscreteEnv(vector, 4), [](ModelSetup* s) {
    s->network.layers = {LinearLayer(20), LinearLayer(16, Activation::kTanh)};
    s->network.noisy = true;
    s->network.dueling = false;
  });
  add("noisy_dueling", DiscreteEnv(vector, 4), [](ModelSetup* s) {
    s->network.noisy = true;
    s->network.dueling_units = 24;
    s->critic = CriticKind::kCategorical;
    s->atoms = 11;
    s->v_min = -3, s->v_max = 7;
  });
  EnvSpec continuous = DiscreteEnv(vector, 0);
  continuous.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  add("continuous", continuous, [](ModelSetup* s) { s->algorithm = AlgorithmKind::kDpg; });
  add("twin_critics", continuous, [](ModelSetup* s) { s->algorithm = AlgorithmKind::kTd3; });
  add("stochastic", continuous, [](ModelSetup* s) { s->algorithm = AlgorithmKind::kSac; });
  add("continuous_normalized", continuous, [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kDpg;
    s->network.normalize_observations = true;
  });
  const LayerConfig norm{.type = LayerType::kLayerNorm};
  add("layer_norm", DiscreteEnv(vector, 3), [&](ModelSetup* s) {
    LayerConfig bounded = norm;
    bounded.activation = Activation::kTanh;
    s->network.layers = {LinearLayer(33, Activation::kNone), norm,
                         LinearLayer(17, Activation::kNone), bounded};
  });
  add("normalized_channels", DiscreteEnv({DType::kU8, {10, 9, 4}}, 3), [&](ModelSetup* s) {
    s->network.layers = {ConvLayer(12, 3, 1), norm, ConvLayer(8, 3, 2), norm, LinearLayer(20)};
  });
  add("continuous_layer_norm", continuous, [&](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kTd3;
    s->network.layers = {LinearLayer(20, Activation::kNone), norm, LinearLayer(9)};
  });
  add("actor_critic", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kVtrace;
    s->network.layers = {LinearLayer(17), LinearLayer(9)};
  });
  add("separate_value", DiscreteEnv(vector, 3), [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kPpo;
    s->network.critic_layers = {LinearLayer(8)};
  });
  add("clipped_gaussian", continuous, [](ModelSetup* s) {
    s->algorithm = AlgorithmKind::kPpo;
    s->network.normalize_observations = true;
    s->network.critic_layers = {LinearLayer(8)};
  });
  add("clipped_gaussian_shared", continuous,
      [](ModelSetup* s) { s->algorithm = AlgorithmKind::kVtrace; });
  // Padding, max_pool and residual blocks, with heads that tests/nn/policy_loops.h computes.
  add("deep", DiscreteEnv({DType::kF32, {6, 5, 2}}, 3), [](ModelSetup* s) {
    LayerConfig conv = PaddedConvLayer(4, 3, 1, 1);
    conv.activation = Activation::kNone;
    s->network.layers = {conv, PoolLayer(3, 2, 1), ResidualLayer(Activation::kNone),
                         ResidualLayer(Activation::kTanh), LinearLayer(7, Activation::kTanh)};
    s->network.dueling = false;
  });
  add("deep_stack", DiscreteEnv({DType::kU8, {11, 10}}, 4, 1.0f / 255), [&](ModelSetup* s) {
    s->frame_stack = 3;
    s->network.layers = {PaddedConvLayer(6, 3, 2, 2), norm, ResidualLayer(Activation::kRelu, 5),
                         PoolLayer(2, 3, 0), LinearLayer(9)};
    s->network.dueling = false;
  });
  add("pool_first", DiscreteEnv({DType::kF32, {7, 6, 2}}, 3), [](ModelSetup* s) {
    s->network.layers = {PoolLayer(4, 1, 2), ResidualLayer(Activation::kRelu),
                         PaddedConvLayer(5, 8, 3, 4), LinearLayer(8)};
    s->network.dueling = false;
  });
  // A stride above twice the padding: the padded output has the size of the plain one.
  add("wide_stride", DiscreteEnv({DType::kF32, {8, 8, 1}}, 3), [](ModelSetup* s) {
    s->network.layers = {PaddedConvLayer(5, 3, 4, 1), LinearLayer(8)};
    s->network.dueling = false;
  });
  AddPartsCases(&cases);
  AddRecurrentCases(&cases);
  return cases;
}
inline PolicyCase PolicyCaseNamed(std::string_view name) {
  const auto cases = PolicyCases();
  const auto at = std::ranges::find(cases, name, &PolicyCase::name);
  EXPECT_NE(at, cases.end()) << name;
  return *at;
}

// A network with drawn parameters: its outputs by Troop's modules, and its exported file.
class PolicyBench {
 public:
  PolicyBench(const ModelSetup& setup, const EnvSpec& env) : setup_(setup), env_(env) {
    auto network = MakeNetwork(setup, env);
    EXPECT_TRUE(network.ok()) << network.status().ToString();
    network_ = std::move(*network);
    value_.resize(std::size_t(ParameterCount(*network_)));
    InitParameters(*network_, 5, value_);
    Rng rng({.run_seed = 8});
    for (float& x : value_) x += float(0.02 * rng.Normal());
    if (setup.network.normalize_observations)
      network_->UpdateStatistics(Observations(50, 3), value_);
  }

  // [rows, ...NetworkInput], with all values of the dtype that the environment may give.
  Tensor Observations(std::int64_t rows, std::uint64_t seed) const {
    const TensorSpec one = NetworkInput(setup_, env_);
    Tensor out(one.dtype, one.shape.Prepend(rows));
    Rng rng({.run_seed = seed});
    if (one.dtype == DType::kU8) {
      for (std::uint8_t& x : out.as<std::uint8_t>()) x = std::uint8_t(rng.Below(256));
    } else if (one.dtype == DType::kI32) {
      for (std::int32_t& x : out.as<std::int32_t>()) x = std::int32_t(rng.Below(7)) - 1;
    } else {
      for (float& x : out.as<float>()) x = float(2 * rng.Normal());
    }
    if (const auto mask = ActionMaskOffset(env_)) DrawMasks(*mask, rows, &out);
    return out;
  }

  // The q-values or actions [rows, actions] by the module, after the clipping that the environments
  // do in training. An episode has EpisodeOf rows, of which the number must be a multiple. Where
  // there are loops in f64 for the network, their values, after the module's are compared with
  // them.
  std::vector<float> Reference(const Tensor& given) const {
    const Tensor observations = setup_.observation_clip > 0 ? Clipped(given) : given;
    const TensorSpec in = observations.spec();
    const auto plan = network_->MakePlan({&in, 1});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const auto packed = network_->MakePacked(Precision::kF32);
    network_->Pack(value_, packed.get());
    MutableBuffer workspace = MutableBuffer::Zeros(plan->workspace_bytes);
    const std::int64_t episode = test::EpisodeOf(setup_);
    const std::vector<std::int32_t> lengths(std::size_t(observations.dim(0) / episode),
                                            std::int32_t(episode));
    const std::int64_t width = StateColumns(setup_.network.layers);
    const std::vector<float> zeros(lengths.size() * std::size_t(width));
    const Sequences sequences{.length = lengths, .state = zeros, .width = width};
    const StepContext context{.value = value_,
                              .packed = packed.get(),
                              .workspace = workspace.bytes(),
                              .sequences = &sequences};
    std::vector<Tensor> out;
    for (const TensorSpec& spec : plan->out) out.emplace_back(spec.dtype, spec.shape);
    const ConstTensor x(observations);
    network_->Forward(context, {&x, 1}, out, {});
    const std::vector<float> computed = Chosen(out[0].as<float>(), observations.dim(0));
    if (!test::HasPolicyLoops(setup_, env_)) return computed;
    test::PolicyLoops loops(setup_, env_, *network_, value_);
    const std::vector<double> want = loops.Outputs(given);
    EXPECT_EQ(want.size(), computed.size());
    for (std::size_t i = 0; i < std::min(want.size(), computed.size()); ++i)
      EXPECT_NEAR(computed[i], want[i], 1e-5 * std::max(1.0, std::abs(want[i]))) << i;
    return {want.begin(), want.end()};
  }

  // The parameters by name.
  TensorFile Parameters() const {
    TensorFile file;
    for (const ParamSpec& param : network_->params()) {
      const Tensor tensor(DType::kF32, param.shape);
      std::copy_n(value_.begin() + param.offset, tensor.elements(), tensor.as<float>().begin());
      file.tensors[param.name] = tensor;
    }
    return file;
  }
  PolicyDescription Description() const {
    const auto policy = DescribePolicy(setup_, env_);
    EXPECT_TRUE(policy.ok()) << policy.status().ToString();
    return *policy;
  }
  // The bytes of the exported safetensors file.
  Buffer File() const {
    TensorFile file = Parameters();
    file.metadata = {{kPolicyKey, EncodePolicy(Description())}};
    return EncodeSafetensors(file);
  }
  const EnvSpec& env() const { return env_; }
  const Module& network() const { return *network_; }
  std::span<const float> value() const { return value_; }

 private:
  // Masks of 0 and 1. Every fourth row allows nothing in its newest frame, which hides nothing; the
  // masks of older frames are other ones.
  void DrawMasks(std::int64_t first, std::int64_t rows, Tensor* out) const {
    const std::int64_t frames = rows * setup_.frame_stack,
                       width = env_.observation.shape.elements();
    for (std::int64_t i = 0; i < frames * env_.action.count; ++i) {
      const std::int64_t frame = i / env_.action.count, action = i % env_.action.count;
      const bool newest = (frame + 1) % setup_.frame_stack == 0;
      const bool none = newest && frame / setup_.frame_stack % 4 == 3;
      const bool allowed = !none && (frame * frame + action) % 3 != 0;
      const auto at = std::size_t(frame * width + first + action);
      if (out->dtype() == DType::kU8) {
        out->as<std::uint8_t>()[at] = std::uint8_t(allowed);
      } else {
        out->as<float>()[at] = float(allowed);
      }
    }
  }
  // Actions or q-values from the outputs of the network.
  std::vector<float> Chosen(std::span<const float> numbers, std::int64_t rows) const {
    if (!env_.action.discrete() && IsActorCritic(setup_.algorithm)) return ClippedMeans(numbers);
    if (!env_.action.discrete()) return {numbers.begin(), numbers.end()};
    std::vector<float> q(std::size_t(rows * env_.action.count));
    if (IsActorCritic(setup_.algorithm)) {
      // The logits, without the value at the end of each row.
      const auto actions = std::size_t(env_.action.count);
      for (std::size_t i = 0; i < q.size(); ++i)
        q[i] = numbers[i / actions * (actions + 1) + i % actions];
      return q;
    }
    ExpectedValues(GetValueHead(setup_), numbers, q);
    return q;
  }
  // The means, with which the rows begin, as actions.
  std::vector<float> ClippedMeans(std::span<const float> numbers) const {
    const std::vector<float>&low = env_.action.low, &high = env_.action.high;
    const std::size_t actions = low.size(), width = 2 * actions + 1;
    std::vector<float> out;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::size_t k = i % width;
      if (k >= actions) continue;
      const double u = std::clamp(double(numbers[i]), -1.0, 1.0);
      out.push_back(float(low[k] + (double(high[k]) - low[k]) * (1 + u) / 2));
    }
    return out;
  }
  Tensor Clipped(const Tensor& given) const {
    Tensor out(given.dtype(), given.shape());
    const auto limit = float(setup_.observation_clip);
    for (std::int64_t i = 0; i < given.elements(); ++i) {
      const float x = given.as<float>()[std::size_t(i)];
      out.as<float>()[std::size_t(i)] = x > limit ? limit : x < -limit ? -limit : x;
    }
    return out;
  }

  const ModelSetup setup_;
  const EnvSpec env_;
  std::unique_ptr<Module> network_;
  std::vector<float> value_;
};

}  // namespace troop
