#include "nn/model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/rng.h"
#include "nn/arena.h"
#include "nn/layers.h"
#include "nn/small_network.h"

namespace troop {
namespace {

Result<Activation> ParseActivation(const LayerConfig& layer, std::size_t index) {
  if (layer.activation == "relu") return Activation::kRelu;
  if (layer.activation == "tanh") return Activation::kTanh;
  if (layer.activation == "none") return Activation::kNone;
  return InvalidArgument(
      "network.layers[{}].activation = \"{}\": one of \"relu\", \"tanh\", \"none\"", index,
      layer.activation);
}

Result<std::unique_ptr<Module>> MakeConv2dLayer(const LayerConfig& layer, std::size_t index,
                                                Activation activation, Shape* shape) {
  if (shape->rank() != 3)
    return InvalidArgument(
        "network.layers[{}]: conv2d needs [height, width, channels], but gets {}", index,
        shape->ToString());
  if (layer.filters <= 0 || layer.kernel <= 0 || layer.stride <= 0)
    return InvalidArgument(
        "network.layers[{}]: conv2d needs filters, kernel and stride > 0, not "
        "{}, {}, {}",
        index, layer.filters, layer.kernel, layer.stride);
  const Conv2dOptions o{(*shape)[0],  (*shape)[1],  (*shape)[2], layer.filters,
                        layer.kernel, layer.stride, activation};
  if (o.kernel > o.height || o.kernel > o.width)
    return InvalidArgument(
        "network.layers[{}].kernel = {} is larger than its input {}; use a "
        "smaller kernel or fewer strides before it",
        index, o.kernel, shape->ToString());
  *shape = {(o.height - o.kernel) / o.stride + 1, (o.width - o.kernel) / o.stride + 1, o.filters};
  return MakeConv2d(o);
}

Result<std::unique_ptr<Module>> MakeLayer(const LayerConfig& layer, std::size_t index,
                                          Shape* shape) {
  TROOP_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(layer, index));
  if (layer.type == "conv2d") return MakeConv2dLayer(layer, index, activation, shape);
  if (layer.type != "linear")
    return InvalidArgument("network.layers[{}].type = \"{}\": one of \"linear\", \"conv2d\"", index,
                           layer.type);
  if (layer.units <= 0)
    return InvalidArgument("network.layers[{}].units = {}: linear needs > 0", index, layer.units);
  const std::int64_t in = shape->elements();
  *shape = {layer.units};
  return MakeLinear(in, layer.units, activation);
}

std::vector<LayerConfig> LayersOf(const Config& config) {
  if (!config.network.layers.empty()) return config.network.layers;
  LayerConfig layer;
  layer.type = "linear";
  layer.units = 64;
  return {layer, layer};
}

Status CheckEnvironment(const EnvSpec& env, bool one_hot) {
  const TensorSpec& seen = env.observation;
  const bool classes = seen.dtype == DType::kI32;
  if (classes ? !one_hot : seen.dtype != DType::kU8 && seen.dtype != DType::kF32)
    return InvalidArgument("environment {}: networks take observations of u8 or f32, not {}{}",
                           env.id, seen.ToString(),
                           classes ? ", or as classes: set network.one_hot to their number" : "");
  if (seen.shape.elements() <= 0)
    return InvalidArgument("environment {}: observations are empty: {}", env.id, seen.ToString());
  if (!env.action.discrete() || env.action.count <= 0)
    return InvalidArgument("environment {}: a q-network needs discrete actions", env.id);
  return Status::Ok();
}

// Whose pictures must be brought into the order that conv2d takes. nullopt: all is as it should be,
// or wrong, as MakeConv2dLayer says.
std::optional<PictureStack> PicturesOf(const Config& config, const EnvSpec& env) {
  const Shape& shape = env.observation.shape;
  const std::int64_t stack = config.env.frame_stack;
  if (LayersOf(config)[0].type != "conv2d" || shape.rank() < 2 || shape.rank() > 3) return {};
  if (stack == 1 && shape.rank() == 3) return {};
  return PictureStack{stack, shape[0], shape[1], shape.rank() == 3 ? shape[2] : 1};
}

// What stands before the layers.
Result<std::unique_ptr<Module>> MakeInputLayer(const Config& config, const EnvSpec& env,
                                               const TensorSpec& input,
                                               const std::optional<PictureStack>& pictures) {
  const bool normalize = config.network.normalize_observations;
  const std::int64_t classes = config.network.one_hot;
  if ((normalize || classes > 0) && LayersOf(config)[0].type == "conv2d") {
    return InvalidArgument(
        "network.{}: pictures, which conv2d comes first for, have a scale of their own; leave it "
        "out",
        normalize ? "normalize_observations" : "one_hot");
  }
  if (normalize) return MakeNormalizedInput(input.shape);
  if (classes > 0) return MakeOneHotInput(classes);
  if (pictures) return MakePictureInput(env.observation_scale, *pictures);
  return MakeInput(env.observation_scale);
}

}  // namespace

TensorSpec NetworkInput(const Config& config, const EnvSpec& env) {
  if (config.env.frame_stack == 1) return env.observation;
  return {env.observation.dtype, env.observation.shape.Prepend(config.env.frame_stack)};
}

Result<std::unique_ptr<Module>> MakeNetwork(const Config& config, const EnvSpec& env) {
  TROOP_RETURN_IF_ERROR(CheckEnvironment(env, config.network.one_hot > 0));
  std::vector<SequentialPart> parts;
  const TensorSpec input = NetworkInput(config, env);
  const std::optional<PictureStack> pictures = PicturesOf(config, env);
  TROOP_ASSIGN_OR_RETURN(auto first, MakeInputLayer(config, env, input, pictures));
  parts.push_back({"input", std::move(first)});
  const std::int64_t classes = config.network.one_hot;
  Shape shape = pictures      ? pictures->out()
                : classes > 0 ? Shape{input.shape.elements() * classes}
                              : input.shape;
  const auto layers = LayersOf(config);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    TROOP_ASSIGN_OR_RETURN(auto layer, MakeLayer(layers[i], i, &shape));
    parts.push_back({"layers." + std::to_string(i), std::move(layer)});
  }
  if (config.network.dueling_units < 0)
    return InvalidArgument("network.dueling_units = {}: needs >= 0", config.network.dueling_units);
  const std::int64_t features = shape.elements();
  parts.push_back(
      {"head", config.network.dueling
                   ? MakeDuelingHead(features, config.network.dueling_units, env.action.count)
                   : MakeLinear(features, env.action.count)});
  auto network = MakeSequential(std::move(parts));
  if (pictures || classes > 0 || config.network.normalize_observations) return network;
  const SmallNetworkSpec small{input,
                               env.observation_scale,
                               layers,
                               config.network.dueling,
                               config.network.dueling_units,
                               env.action.count};
  if (auto fused = MakeSmallNetwork(small, network->params())) return fused;
  return network;
}

std::int64_t ParameterCount(const Module& module) {
  std::int64_t end = 0;
  for (const ParamSpec& spec : module.params())
    end = std::max(end, spec.offset + spec.shape.elements());
  return AlignParams(end);
}

void InitParameters(const Module& module, std::uint64_t seed, std::span<float> value) {
  TROOP_CHECK(std::int64_t(value.size()) == ParameterCount(module), "{} values for {} parameters",
              value.size(), ParameterCount(module));
  std::ranges::fill(value, 0.0f);
  std::uint64_t index = 0;
  for (const ParamSpec& spec : module.params()) {
    Rng rng({seed, Purpose::kParameters, index++});
    if (spec.init == ParamSpec::Init::kZeros) continue;
    const float bound = 1.0f / std::sqrt(float(spec.fan_in));
    for (float& v : value.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements())))
      v = bound * (2.0f * rng.UniformF32() - 1.0f);
  }
}

}  // namespace troop
