// Implements the description of policies, parallel to the construction of their networks.
#include "nn/export/policy_description.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/config/enum_format.h"
#include "nn/layers/own_layer.h"
#include "nn/models/model.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

// The chain of layers so far, and the shape of its output.
class LayerChain {
 public:
  explicit LayerChain(Shape shape) : shape_(std::move(shape)) {}

  void Append(PolicyLayer layer, const Shape& out) {
    layer.in = std::exchange(shape_, out);
    layer.out = out;
    layers_.push_back(std::move(layer));
  }
  const Shape& shape() const { return shape_; }
  std::vector<PolicyLayer> Take() { return std::move(layers_); }

 private:
  Shape shape_;
  std::vector<PolicyLayer> layers_;
};

// The input layer, as MakeInputLayer chooses it.
void AppendInput(const ModelSetup& setup, const EnvSpec& env, const std::string& prefix,
                 LayerChain* chain) {
  using Kind = PolicyLayerKind;
  // Parts are selected from the whole observation.
  const std::string name = prefix + (env.parts.empty() ? "input" : "input.observation");
  const float scale = env.observation_scale;
  // In training the environments clip, before frames are stacked; the stack begins with zeros.
  if (const auto clip = float(setup.observation_clip); clip > 0)
    chain->Append({.kind = Kind::kClip, .low = -clip, .high = clip}, chain->shape());
  if (setup.network.normalize_observations)
    return chain->Append({.kind = Kind::kNormalize, .tensors = name}, chain->shape());
  if (const std::int64_t classes = setup.network.one_hot; classes > 0) {
    return chain->Append({.kind = Kind::kOneHot, .classes = classes},
                         {chain->shape().elements() * classes});
  }
  if (const auto pictures = PicturesOf(setup, env, LayersOf(setup)[0])) {
    return chain->Append({.kind = Kind::kImages, .factor = scale, .stack = pictures->stack},
                         pictures->out());
  }
  chain->Append({.kind = Kind::kScale, .factor = scale}, chain->shape());
}

// An own layer, and where it stands in the config.
struct OwnLayerPlace {
  const LayerConfig& layer;
  const std::string& library;
  const std::string key;
};

// A conv2d layer, after the zeros around its input.
void AppendConv2d(const LayerConfig& layer, PolicyLayer next, LayerChain* chain) {
  if (const std::int64_t padding = layer.padding; padding > 0) {
    const Shape& in = chain->shape();
    chain->Append({.kind = PolicyLayerKind::kPadding, .padding = padding},
                  ImagePadding{in[0], in[1], in[2], padding}.out());
  }
  next.kind = PolicyLayerKind::kConv2d;
  next.kernel = layer.kernel;
  next.stride = layer.stride;
  const Shape& in = chain->shape();
  const auto out = [&](std::int64_t size) { return (size - layer.kernel) / layer.stride + 1; };
  chain->Append(std::move(next), {out(in[0]), out(in[1]), layer.filters});
}

// The options of a max_pool layer for this input.
MaxPoolOptions PoolOf(const LayerConfig& layer, const Shape& in) {
  return {in[0], in[1], in[2], layer.kernel, layer.stride, layer.padding};
}

// One built-in layer. tensors: prefix of its parameters.
void AppendBuiltIn(const LayerConfig& layer, std::string tensors, LayerChain* chain) {
  using Kind = PolicyLayerKind;
  PolicyLayer next{.tensors = std::move(tensors), .activation = layer.activation};
  const Shape same = chain->shape();
  switch (layer.type) {
    case LayerType::kConv2d:
      return AppendConv2d(layer, std::move(next), chain);
    case LayerType::kLayerNorm:
      next.kind = Kind::kLayerNorm;
      return chain->Append(std::move(next), same);
    case LayerType::kMaxPool:
      // Neither parameters nor an activation.
      return chain->Append({.kind = Kind::kMaxPool,
                            .kernel = layer.kernel,
                            .stride = layer.stride,
                            .padding = layer.padding},
                           PoolOf(layer, same).out());
    case LayerType::kResidual:
      // Its parameters are those of both convolutions under one prefix.
      next.kind = Kind::kResidual;
      next.kernel = layer.kernel;
      return chain->Append(std::move(next), same);
    default:
      next.kind = Kind::kLinear;
      return chain->Append(std::move(next), {layer.units});
  }
}

// The layers of an observation with parts, as MakeInputLayer selects and concatenates them. Returns
// the number of network.layers that they contain.
std::size_t AppendParts(const ModelSetup& setup, const EnvSpec& env, const std::string& prefix,
                        LayerChain* chain) {
  using Kind = PolicyLayerKind;
  const std::vector<VisiblePart> visible = VisibleParts(setup, env);
  const auto append = [](const ObservationPartOptions& part, LayerChain* to) {
    to->Append(
        {.kind = Kind::kPart, .factor = part.scale, .stack = part.stack, .first = part.first},
        part.out());
  };
  // 1. The layers take a single part as they take a plain observation.
  if (visible.size() == 1) {
    append(visible[0].options, chain);
    return 0;
  }
  // 2. Each image passes its own copy of the layers for images.
  const std::vector<LayerConfig> layers = LayersOf(setup);
  const bool images = std::ranges::any_of(visible, &VisiblePart::image);
  const std::size_t shared =
      images ? ImageLayers({"network.layers", layers, 0, layers.size(), setup.library}) : 0;
  PolicyLayer parts{.kind = Kind::kParts};
  std::int64_t features = 0;
  for (const VisiblePart& part : visible) {
    LayerChain branch(chain->shape());
    append(part.options, &branch);
    for (std::size_t i = 0; part.image() && i < shared; ++i) {
      AppendBuiltIn(layers[i], fmt::format("{}input.parts.{}.layers.{}", prefix, part.name, i),
                    &branch);
    }
    features += branch.shape().elements();
    parts.branches.push_back(branch.Take());
  }
  chain->Append(std::move(parts), {features});
  return shared;
}

// The weights of a layer, whose biases have one value per output, by their prefix; nullopt: the
// layer is invalid for this input.
using PartWeights = std::vector<std::pair<std::string, Shape>>;
std::optional<PartWeights> WeightsOf(const LayerConfig& layer, const Shape& in) {
  const bool image = in.rank() == 3;
  const std::int64_t k = layer.kernel, padding = layer.padding, stride = layer.stride;
  // Padding enlarges the image that the kernel must fit into.
  const bool fits =
      image && k > 0 && padding >= 0 && stride > 0 && k <= std::min(in[0], in[1]) + 2 * padding;
  switch (layer.type) {
    case LayerType::kLinear:
      if (layer.units <= 0) return {};
      return PartWeights{{"", {layer.units, in.elements()}}};
    case LayerType::kLayerNorm:
      // Weight and bias have one value per element of the last axis.
      if (in.rank() == 0) return {};
      return PartWeights{{"", {in[in.rank() - 1]}}};
    case LayerType::kConv2d:
      if (!fits || layer.filters <= 0) return {};
      return PartWeights{{"", {layer.filters, k, k, in[2]}}};
    case LayerType::kMaxPool:
      if (!fits || 2 * padding > k) return {};
      return PartWeights{};
    case LayerType::kResidual:
      if (!image || k <= 0 || k % 2 == 0) return {};
      return PartWeights{{"conv0.", {in[2], k, k, in[2]}}, {"conv1.", {in[2], k, k, in[2]}}};
    default:
      return {};
  }
}

// Checks that a part of an own layer is a built-in layer for this input, whose parameters the
// module has.
Status CheckPart(const OwnLayer& own, const OwnLayer::Part& part, const Shape& in) {
  const std::optional<PartWeights> weights = WeightsOf(part.layer, in);
  if (!weights) {
    return InvalidArgument(
        "describes itself by a layer \"{}\" that is invalid for the input {}; set its keys",
        EnumName(part.layer.type), in.ToString());
  }
  // Each weight has a bias.
  PartWeights all;
  for (const auto& [prefix, shape] : *weights) {
    all.emplace_back(fmt::format("{}.{}weight", part.tensors, prefix), shape);
    all.emplace_back(fmt::format("{}.{}bias", part.tensors, prefix), Shape{shape[0]});
  }
  for (const auto& [name, shape] : all) {
    const auto params = own.module->params();
    const auto found = std::ranges::find(params, name, &ParamSpec::name);
    if (found == params.end() || !(found->shape == shape)) {
      return InvalidArgument("describes itself by a parameter \"{}\" {}, but the module has {}",
                             name, shape.ToString(),
                             found == params.end() ? "none" : found->shape.ToString());
    }
  }
  return Status::Ok();
}

// A layer of an extension leaves Troop as the built-in layers that it is equal to.
Status AppendOwn(const OwnLayerPlace& place, const std::string& tensors, LayerChain* chain) {
  const std::string name = fmt::format("{} (\"{}\")", place.key, place.layer.own_type);
  TROOP_ASSIGN_OR_RETURN(const OwnLayer own,
                         MakeOwnLayer(place.layer, place.library, place.key, chain->shape()));
  if (own.equals.empty()) {
    return FailedPrecondition(
        "{}: a policy with this own layer can't be exported, because the layer is equal to no "
        "built-in layers; let its factory return them in OwnLayer::equals, or use other layers",
        name);
  }
  const Shape out = OutputOf(own, chain->shape());
  for (const OwnLayer::Part& part : own.equals) {
    TROOP_RETURN_IF_ERROR(CheckPart(own, part, chain->shape()).WithContext(name));
    AppendBuiltIn(part.layer, fmt::format("{}.{}", tensors, part.tensors), chain);
  }
  if (chain->shape().elements() == out.elements()) return Status::Ok();
  return InvalidArgument("{}: describes itself by layers with the output {}, but its output is {}",
                         name, chain->shape().ToString(), out.ToString());
}

// The layers of network.layers from `begin` on.
Status AppendHidden(const ModelSetup& setup, std::size_t begin, const std::string& prefix,
                    LayerChain* chain) {
  const std::vector<LayerConfig> layers = LayersOf(setup);
  for (std::size_t i = begin; i < layers.size(); ++i) {
    const std::string tensors = fmt::format("{}layers.{}", prefix, i);
    if (IsRecurrent(layers[i].type)) {
      // The state follows from the kinds: state_size().
      const bool lstm = layers[i].type == LayerType::kLstm;
      chain->Append(
          {.kind = lstm ? PolicyLayerKind::kLstm : PolicyLayerKind::kGru, .tensors = tensors},
          {layers[i].units});
      continue;
    }
    if (layers[i].type != LayerType::kOwn) {
      AppendBuiltIn(layers[i], tensors, chain);
      continue;
    }
    const OwnLayerPlace place{layers[i], setup.library, fmt::format("network.layers[{}]", i)};
    TROOP_RETURN_IF_ERROR(AppendOwn(place, tensors, chain));
  }
  return Status::Ok();
}

// Linear or dueling head, then the mean of each action's distribution.
void AppendValueHead(const ModelSetup& setup, std::int64_t actions, const std::string& prefix,
                     LayerChain* chain) {
  using Kind = PolicyLayerKind;
  // A dueling head keeps the K outputs per action apart; a linear head has no such groups.
  const ValueHead head = GetValueHead(setup);
  PolicyLayer layer{.kind = Kind::kLinear, .tensors = prefix + "head"};
  // The logits alone: the value is not part of the policy.
  if (setup.network.dueling && !IsActorCritic(setup.algorithm)) {
    layer.kind = Kind::kDueling;
    layer.units = setup.network.dueling_units;
    layer.numbers = head.numbers;
  }
  chain->Append(std::move(layer), {actions * head.numbers});
  switch (head.kind) {
    case ValueHead::Kind::kScalar:
      return;
    case ValueHead::Kind::kCategorical:
      return chain->Append(
          {.kind = Kind::kCategoricalMean, .low = float(head.low), .high = float(head.high)},
          {actions});
    case ValueHead::Kind::kQuantile:
      return chain->Append({.kind = Kind::kQuantileMean}, {actions});
  }
}

// The dimensions, outermost first.
JsonArray DimensionsOf(const Shape& shape) {
  JsonArray out;
  for (int i = 0; i < shape.rank(); ++i) out.Add(shape[i]);
  return out;
}

JsonObject JsonOf(const PolicyLayer& layer);

// A list of layers.
JsonArray JsonOf(const std::vector<PolicyLayer>& layers) {
  JsonArray out;
  for (const PolicyLayer& layer : layers) out.Add(JsonOf(layer));
  return out;
}

// Members with a kind's default value are left out.
JsonObject JsonOf(const PolicyLayer& layer) {
  JsonObject out;
  out.Add("kind", EnumName(layer.kind));
  if (!layer.tensors.empty()) out.Add("tensors", layer.tensors);
  out.Add("in", DimensionsOf(layer.in)).Add("out", DimensionsOf(layer.out));
  if (layer.activation != Activation::kNone) out.Add("activation", EnumName(layer.activation));
  if (layer.factor != 1) out.Add("factor", double(layer.factor));
  if (layer.kernel > 0) out.Add("kernel", layer.kernel);
  if (layer.stride > 0) out.Add("stride", layer.stride);
  if (layer.padding > 0) out.Add("padding", layer.padding);
  if (layer.stack > 1) out.Add("stack", layer.stack);
  if (layer.classes > 0) out.Add("classes", layer.classes);
  if (layer.units > 0) out.Add("units", layer.units);
  if (layer.numbers > 1) out.Add("numbers", layer.numbers);
  if (layer.kind == PolicyLayerKind::kCategoricalMean || layer.kind == PolicyLayerKind::kClip)
    out.Add("low", double(layer.low)).Add("high", double(layer.high));
  if (layer.kind == PolicyLayerKind::kPart || layer.kind == PolicyLayerKind::kActionMask)
    out.Add("first", layer.first);
  if (layer.branches.empty()) return out;
  JsonArray branches;
  for (const std::vector<PolicyLayer>& branch : layer.branches) branches.Add(JsonOf(branch));
  out.Add("branches", branches);
  return out;
}

}  // namespace

// The parts of an observation in their order, without their scales, which the layers have.
JsonArray PartsJson(const std::vector<ObservationPart>& parts) {
  JsonArray out;
  for (const ObservationPart& part : parts) {
    JsonObject one;
    one.Add("name", part.name).Add("shape", DimensionsOf(part.shape));
    if (part.action_mask) one.Add("action_mask", true);
    out.Add(one);
  }
  return out;
}

// Branches of parts have no recurrent layers.
std::int64_t PolicyDescription::state_size() const {
  std::int64_t size = 0;
  for (const PolicyLayer& layer : layers) {
    if (layer.kind == PolicyLayerKind::kLstm) size += 2 * layer.out[0];
    if (layer.kind == PolicyLayerKind::kGru) size += layer.out[0];
  }
  return size;
}

// The network is made once, so that its errors are those of MakeNetwork.
Result<PolicyDescription> DescribePolicy(const ModelSetup& setup, const EnvSpec& env) {
  if (IsSupervised(setup))
    return InvalidArgument("learner.algorithm = \"{}\" trains a text model, which has no policy",
                           setup.algorithm);
  const auto network = MakeNetwork(setup, env);
  if (!network.ok()) return network.status();
  if (env.action.integers) {
    return FailedPrecondition(
        "the policy of {} can't be exported, because exported policies have no actions of several "
        "discrete components; evaluate it with troop eval",
        env.id);
  }
  PolicyDescription policy{.observation = env.observation,
                           .parts = env.parts,
                           .frame_stack = setup.frame_stack,
                           .action = env.action};
  LayerChain chain(NetworkInput(setup, env).shape);
  // An actor-critic's policy has a prefix where the value has a separate network.
  const bool actor_critic = IsActorCritic(setup.algorithm);
  const bool alone = actor_critic ? setup.network.critic_layers.empty() : env.action.discrete();
  const std::string prefix = alone ? "" : "policy.";
  AppendInput(setup, env, prefix, &chain);
  const std::size_t begin = env.parts.empty() ? 0 : AppendParts(setup, env, prefix, &chain);
  TROOP_RETURN_IF_ERROR(AppendHidden(setup, begin, prefix, &chain));
  if (env.action.discrete()) {
    AppendValueHead(setup, env.action.count, prefix, &chain);
    // The network masks all outputs of an action; the mean of masked quantiles is masked as well.
    if (const auto first = ActionMaskOffset(env))
      chain.Append({.kind = PolicyLayerKind::kActionMask, .first = *first}, {env.action.count});
  } else {
    // The critic is not part of the policy.
    const Shape actions{std::int64_t(env.action.low.size())};
    chain.Append({.kind = PolicyLayerKind::kLinear, .tensors = prefix + "head"}, actions);
    chain.Append(
        {.kind = actor_critic ? PolicyLayerKind::kClippedBounds : PolicyLayerKind::kActionBounds},
        actions);
  }
  policy.layers = chain.Take();
  return policy;
}

// Lists of inputs and heads have one element each: the format allows more.
std::string EncodePolicy(const PolicyDescription& policy) {
  const auto floats = [](const std::vector<float>& values) {
    JsonArray out;
    for (const float value : values) out.Add(double(value));
    return out;
  };
  JsonObject action;
  action.Add("name", "action");
  if (policy.action.discrete()) {
    action.Add("kind", "discrete").Add("count", policy.action.count);
  } else {
    action.Add("kind", "continuous");
    action.Add("low", floats(policy.action.low)).Add("high", floats(policy.action.high));
  }
  JsonObject observation;
  observation.Add("name", "observation")
      .Add("dtype", DTypeName(policy.observation.dtype))
      .Add("shape", DimensionsOf(policy.observation.shape))
      .Add("stack", policy.frame_stack);
  if (!policy.parts.empty()) observation.Add("parts", PartsJson(policy.parts));
  return JsonObject()
      .Add("version", 1)
      .Add("observations", JsonArray().Add(observation))
      .Add("actions", JsonArray().Add(action))
      .Add("layers", JsonOf(policy.layers))
      .str();
}

Result<std::string> EncodedPolicyOf(const ModelSetup& setup, const EnvSpec& env) {
  if (IsSupervised(setup)) return std::string();
  const auto policy = DescribePolicy(setup, env);
  // An own layer without a description: the agent trains, but its policy stays in Troop.
  if (policy.status().code() == Code::kFailedPrecondition) return std::string();
  if (!policy.ok()) return policy.status();
  return EncodePolicy(*policy);
}

}  // namespace troop
