#include "nn/trunk.h"

#include <algorithm>
#include <optional>

#include "nn/model.h"

namespace troop {
namespace {

Result<Activation> ParseActivation(const LayerConfig& layer, const std::string& name) {
  if (layer.activation == "relu") return Activation::kRelu;
  if (layer.activation == "tanh") return Activation::kTanh;
  if (layer.activation == "none") return Activation::kNone;
  return InvalidArgument("{}.activation = \"{}\": one of \"relu\", \"tanh\", \"none\"", name,
                         layer.activation);
}

Result<std::unique_ptr<Module>> MakeConv2dLayer(const LayerConfig& layer, const std::string& name,
                                                Activation activation, Shape* shape) {
  if (shape->rank() != 3)
    return InvalidArgument("{}: conv2d needs [height, width, channels], but gets {}", name,
                           shape->ToString());
  if (layer.filters <= 0 || layer.kernel <= 0 || layer.stride <= 0)
    return InvalidArgument(
        "{}: conv2d needs filters, kernel and stride > 0, not "
        "{}, {}, {}",
        name, layer.filters, layer.kernel, layer.stride);
  const Conv2dOptions o{(*shape)[0],  (*shape)[1],  (*shape)[2], layer.filters,
                        layer.kernel, layer.stride, activation};
  if (o.kernel > o.height || o.kernel > o.width)
    return InvalidArgument(
        "{}.kernel = {} is larger than its input {}; use a "
        "smaller kernel or fewer strides before it",
        name, o.kernel, shape->ToString());
  *shape = {(o.height - o.kernel) / o.stride + 1, (o.width - o.kernel) / o.stride + 1, o.filters};
  return MakeConv2d(o);
}

Result<std::unique_ptr<Module>> MakeLayer(const LayerConfig& layer, const std::string& name,
                                          Shape* shape) {
  TROOP_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(layer, name));
  if (layer.type == "conv2d") return MakeConv2dLayer(layer, name, activation, shape);
  if (layer.type != "linear")
    return InvalidArgument("{}.type = \"{}\": one of \"linear\", \"conv2d\"", name, layer.type);
  if (layer.units <= 0)
    return InvalidArgument("{}.units = {}: linear needs > 0", name, layer.units);
  const std::int64_t in = shape->elements();
  *shape = {layer.units};
  return MakeLinear(in, layer.units, activation);
}

// [4, 84, 84], where a picture is [height, width, channels] here.
bool HasChannelsFirst(const Shape& shape) {
  constexpr std::int64_t kChannelsMax = 16;
  return shape.rank() == 3 && shape[0] <= kChannelsMax &&
         std::min(shape[1], shape[2]) > std::max(kChannelsMax, 2 * shape[0]);
}

}  // namespace

std::vector<LayerConfig> LayersOf(const Config& config) {
  if (!config.network.layers.empty()) return config.network.layers;
  LayerConfig layer;
  layer.type = "linear";
  layer.units = 64;
  return {layer, layer};
}

Status CheckObservation(const Config& config, const EnvSpec& env) {
  const bool one_hot = config.network.one_hot > 0;
  const TensorSpec& seen = env.observation;
  const bool classes = seen.dtype == DType::kI32;
  if (classes ? !one_hot : seen.dtype != DType::kU8 && seen.dtype != DType::kF32)
    return InvalidArgument("environment {}: networks take observations of u8 or f32, not {}{}",
                           env.id, seen.ToString(),
                           classes ? ", or as classes: set network.one_hot to their number" : "");
  if (seen.shape.elements() <= 0)
    return InvalidArgument("environment {}: observations are empty: {}", env.id, seen.ToString());
  if (HasChannelsFirst(seen.shape) && LayersOf(config)[0].type == "conv2d")
    return InvalidArgument(
        "environment {}: observations {} have their channels first, and conv2d takes [height, "
        "width, channels]; move them with a wrapper (numpy.moveaxis(observation, 0, -1), "
        "docs/environments.md)",
        env.id, seen.ToString());
  return Status::Ok();
}

std::string PictureAdvice(const Config& config, const EnvSpec& env) {
  const TensorSpec& seen = env.observation;
  const std::int64_t rank = seen.shape.rank();
  const bool picture = rank == 3 || (rank == 2 && seen.dtype == DType::kU8);
  if (!picture || seen.shape.elements() < 1024 || LayersOf(config)[0].type == "conv2d") return {};
  return fmt::format(
      "environment {}: observations {} look like pictures, and no layer of network.layers is a "
      "conv2d: linear layers do not see which pixels are neighbours (configs/apex_atari.toml has "
      "layers for pictures)",
      env.id, seen.ToString());
}

std::optional<PictureStack> PicturesOf(const Config& config, const EnvSpec& env,
                                       const LayerConfig& first) {
  const Shape& shape = env.observation.shape;
  const std::int64_t stack = config.env.frame_stack;
  if (first.type != "conv2d" || shape.rank() < 2 || shape.rank() > 3) return {};
  if (stack == 1 && shape.rank() == 3) return {};
  return PictureStack{stack, shape[0], shape[1], shape.rank() == 3 ? shape[2] : 1};
}

Result<TrunkInput> MakeInputLayer(const Config& config, const EnvSpec& env,
                                  const LayerConfig& first) {
  const bool normalize = config.network.normalize_observations;
  const std::int64_t classes = config.network.one_hot;
  if ((normalize || classes > 0) && first.type == "conv2d") {
    return InvalidArgument(
        "network.{}: pictures, which conv2d comes first for, have a scale of their own; leave it "
        "out",
        normalize ? "normalize_observations" : "one_hot");
  }
  const Shape shape = NetworkInput(config, env).shape;
  if (normalize) return TrunkInput{MakeNormalizedInput(shape), shape};
  if (classes > 0) return TrunkInput{MakeOneHotInput(classes), {shape.elements() * classes}};
  if (const auto pictures = PicturesOf(config, env, first)) {
    return TrunkInput{MakePictureInput(env.observation_scale, *pictures), pictures->out()};
  }
  return TrunkInput{MakeInput(env.observation_scale), shape};
}

Status AppendLayers(const LayerRange& range, Shape* shape, std::vector<SequentialPart>* parts) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const std::string name = fmt::format("{}[{}]", range.key, i);
    TROOP_ASSIGN_OR_RETURN(auto layer, MakeLayer(range.layers[i], name, shape));
    parts->push_back({fmt::format("layers.{}", i), std::move(layer)});
  }
  return Status::Ok();
}

}  // namespace troop
