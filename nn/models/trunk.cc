// Implements the checks and layers that the networks of agents share.
#include "nn/models/trunk.h"

#include <algorithm>
#include <optional>

#include "nn/layers/own_layer.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Checks the input and the options, and updates the shape. `name` is the key of the layer.
Result<std::unique_ptr<Module>> MakeConv2dLayer(const LayerConfig& layer, const std::string& name,
                                                Shape* shape) {
  if (shape->rank() != 3)
    return InvalidArgument("{}: conv2d needs [height, width, channels], but gets {}", name,
                           shape->ToString());
  if (layer.filters <= 0 || layer.kernel <= 0 || layer.stride <= 0)
    return InvalidArgument(
        "{}: conv2d needs filters, kernel and stride > 0, not "
        "{}, {}, {}",
        name, layer.filters, layer.kernel, layer.stride);
  // No padding, so the kernel must fit into the input.
  const Conv2dOptions o{(*shape)[0],  (*shape)[1],  (*shape)[2],     layer.filters,
                        layer.kernel, layer.stride, layer.activation};
  if (o.kernel > o.height || o.kernel > o.width)
    return InvalidArgument(
        "{}.kernel = {} is larger than its input {}; use a "
        "smaller kernel or fewer strides before it",
        name, o.kernel, shape->ToString());
  *shape = {(o.height - o.kernel) / o.stride + 1, (o.width - o.kernel) / o.stride + 1, o.filters};
  return MakeConv2d(o);
}

// Creates a layer that needs an image besides conv2d, and updates the shape.
Result<std::unique_ptr<Module>> MakeImageLayer(const LayerConfig& layer, const std::string& name,
                                               Shape* shape) {
  const std::string_view type = EnumName(layer.type);
  if (shape->rank() != 3)
    return InvalidArgument("{}: {} needs [height, width, channels], but gets {}", name, type,
                           shape->ToString());
  const std::int64_t height = (*shape)[0], width = (*shape)[1], channels = (*shape)[2];
  if (layer.type == LayerType::kResidual) {
    if (layer.kernel < 1 || layer.kernel % 2 == 0)
      return InvalidArgument("{}: residual needs an odd kernel, not {}", name, layer.kernel);
    return MakeResidual({height, width, channels, layer.kernel, layer.activation});
  }
  // Only max_pool remains, which keeps the channels.
  const MaxPoolOptions pool{height, width, channels, layer.kernel, layer.stride, layer.padding};
  if (pool.kernel < 1 || pool.stride < 1 || pool.padding < 0 || 2 * pool.padding > pool.kernel)
    return InvalidArgument(
        "{}: max_pool needs kernel and stride > 0 and a padding of at most half the kernel, not "
        "{}, {} and {}",
        name, pool.kernel, pool.stride, pool.padding);
  if (pool.kernel > std::min(height, width) + 2 * pool.padding)
    return InvalidArgument("{}.kernel = {} is larger than its input {}; use a smaller kernel", name,
                           pool.kernel, shape->ToString());
  *shape = pool.out();
  return MakeMaxPool(pool);
}

// Creates a layer of an extension and updates the shape.
Result<std::unique_ptr<Module>> MakeLayerOfExtension(const LayerConfig& layer,
                                                     const std::string& name,
                                                     const std::string& library, Shape* shape) {
  TROOP_ASSIGN_OR_RETURN(OwnLayer own, MakeOwnLayer(layer, library, name, *shape));
  // The plan of the module, not the config, defines its output.
  *shape = OutputOf(own, *shape);
  return std::move(own.module);
}

// Creates layer i of a list and updates the shape.
Result<std::unique_ptr<Module>> MakeLayer(const LayerRange& range, std::size_t i, Shape* shape) {
  const LayerConfig& layer = range.layers[i];
  const std::string name = fmt::format("{}[{}]", range.key, i);
  if (layer.type == LayerType::kOwn) return MakeLayerOfExtension(layer, name, range.library, shape);
  if (layer.type == LayerType::kConv2d) return MakeConv2dLayer(layer, name, shape);
  if (IsImageLayer(layer.type)) return MakeImageLayer(layer, name, shape);
  if (layer.type == LayerType::kLayerNorm) {
    if (shape->rank() == 0)
      return InvalidArgument("{}: layer_norm needs at least one axis, but gets a scalar", name);
    return MakeLayerNorm((*shape)[shape->rank() - 1], layer.activation);
  }
  if (layer.units <= 0) return InvalidArgument("{}.units = {}: must be above 0", name, layer.units);
  const std::int64_t in = shape->elements();
  *shape = {layer.units};
  if (IsRecurrent(layer.type)) {
    if (!range.recurrent)
      return InvalidArgument(
          "{}: lstm and gru layers are supported by learner.algorithm = \"r2d2\", \"pqn\", "
          "\"vtrace\" and \"ppo\" only; use env.frame_stack, or change the algorithm",
          name);
    // Each layer has the columns of the state that follow those of the layers before it.
    const RecurrentOptions options{in, layer.units, StateColumns(std::span(range.layers).first(i))};
    return layer.type == LayerType::kLstm ? MakeLstm(options) : MakeGru(options);
  }
  if (range.noisy_sigma > 0)
    return MakeNoisyLinear({in, layer.units, layer.activation, range.noisy_sigma, i});
  return MakeLinear(in, layer.units, layer.activation);
}

// True for shapes like [4, 84, 84]; images must be [height, width, channels].
bool HasChannelsFirst(const Shape& shape) {
  constexpr std::int64_t kChannelsMax = 16;
  return shape.rank() == 3 && shape[0] <= kChannelsMax &&
         std::min(shape[1], shape[2]) > std::max(kChannelsMax, 2 * shape[0]);
}

}  // namespace

// The default suits vector observations.
std::vector<LayerConfig> LayersOf(const ModelSetup& setup) {
  if (!setup.network.layers.empty()) return setup.network.layers;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 64;
  return {layer, layer};
}

// Integer observations need one-hot encoding; images must have their channels last.
Status CheckObservation(const ModelSetup& setup, const EnvSpec& env) {
  const bool one_hot = setup.network.one_hot > 0;
  const TensorSpec& seen = env.observation;
  const bool classes = seen.dtype == DType::kI32;
  if (classes ? !one_hot : seen.dtype != DType::kU8 && seen.dtype != DType::kF32)
    return InvalidArgument(
        "environment {}: networks take observations of u8 or f32, not {}{}", env.id,
        seen.ToString(),
        classes ? "; to one-hot encode, set network.one_hot to the class count" : "");
  if (seen.shape.elements() <= 0)
    return InvalidArgument("environment {}: observations are empty: {}", env.id, seen.ToString());
  const bool convolves = LayersOf(setup)[0].type == LayerType::kConv2d;
  const auto channels_first = [&](const ObservationPart& part) {
    return HasChannelsFirst(part.shape);
  };
  if (convolves && (HasChannelsFirst(seen.shape) || std::ranges::any_of(env.parts, channels_first)))
    return InvalidArgument(
        "environment {}: observations {} have their channels first, but conv2d takes [height, "
        "width, channels]; move them with a wrapper (numpy.moveaxis(observation, 0, -1), "
        "docs/guide/environments.md)",
        env.id, DescribeObservation(env));
  if (one_hot && !env.parts.empty())
    return InvalidArgument(
        "network.one_hot: {} has observations with several parts ({}); leave it out", env.id,
        DescribeObservation(env));
  return Status::Ok();
}

// Observations below 1,024 elements (feature planes such as MinAtar's) get no advice.
std::string PictureAdvice(const ModelSetup& setup, const EnvSpec& env) {
  const TensorSpec& seen = env.observation;
  const std::int64_t rank = seen.shape.rank();
  const auto large = [](const Shape& shape) { return shape.elements() >= 1024; };
  const bool picture = (rank == 3 || (rank == 2 && seen.dtype == DType::kU8)) && large(seen.shape);
  const auto picture_part = [&](const ObservationPart& part) {
    return part.shape.rank() == 3 && large(part.shape);
  };
  if ((!picture && std::ranges::none_of(env.parts, picture_part)) ||
      LayersOf(setup)[0].type == LayerType::kConv2d)
    return {};
  return fmt::format(
      "environment {}: observations {} look like images, but no layer of network.layers is a "
      "conv2d: linear layers ignore which pixels are adjacent (configs/apex_atari.toml has "
      "layers for images)",
      env.id, DescribeObservation(env));
}

// A single image with channels is in conv2d's layout already.
std::optional<PictureStack> PicturesOf(const ModelSetup& setup, const EnvSpec& env,
                                       const LayerConfig& first) {
  const Shape& shape = env.observation.shape;
  const std::int64_t stack = setup.frame_stack;
  if (first.type != LayerType::kConv2d || shape.rank() < 2 || shape.rank() > 3) return {};
  if (stack == 1 && shape.rank() == 3) return {};
  return PictureStack{stack, shape[0], shape[1], shape.rank() == 3 ? shape[2] : 1};
}

// Layers are named by their index in the list, not in the range.
Status AppendLayers(const LayerRange& range, Shape* shape, std::vector<SequentialPart>* parts) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    // The zeros around an image are a layer without parameters.
    const std::int64_t padding = range.layers[i].padding;
    if (range.layers[i].type == LayerType::kConv2d && padding > 0 && shape->rank() == 3) {
      const ImagePadding zeros{(*shape)[0], (*shape)[1], (*shape)[2], padding};
      *shape = zeros.out();
      parts->push_back({fmt::format("padding.{}", i), MakePadding(zeros)});
    }
    TROOP_ASSIGN_OR_RETURN(auto layer, MakeLayer(range, i, shape));
    parts->push_back({fmt::format("layers.{}", i), std::move(layer)});
  }
  return Status::Ok();
}

std::size_t ImageLayers(const LayerRange& range) {
  if (range.layers[range.begin].type != LayerType::kConv2d) return 0;
  std::size_t count = 0;
  while (range.begin + count < range.end) {
    const LayerType type = range.layers[range.begin + count].type;
    if (!IsImageLayer(type) && type != LayerType::kLayerNorm) break;
    ++count;
  }
  return count;
}

std::vector<VisiblePart> VisibleParts(const ModelSetup& setup, const EnvSpec& env) {
  std::vector<VisiblePart> visible;
  std::int64_t first = 0;
  for (const ObservationPart& part : env.parts) {
    // Normalized elements have a deviation of 1 already.
    const float scale = setup.network.normalize_observations ? 1 : part.scale;
    if (!part.action_mask) {
      visible.push_back(
          {part.name,
           {setup.frame_stack, env.observation.shape.elements(), first, part.shape, scale}});
    }
    first += part.shape.elements();
  }
  return visible;
}

namespace {

// The input of an observation with parts: `whole` converts all of it.
Result<TrunkInput> MakeStructuredInput(const ModelSetup& setup, const EnvSpec& env,
                                       const LayerRange& range, std::unique_ptr<Module> whole) {
  const std::vector<VisiblePart> visible = VisibleParts(setup, env);
  // The whole observation is converted once; its parts are selected from the result.
  std::vector<SequentialPart> input;
  input.push_back({"observation", std::move(whole)});
  // 1. A single part keeps its shape, so the layers take it as they take a plain observation.
  if (visible.size() == 1) {
    input.push_back({"part", MakeObservationPart(visible[0].options)});
    return TrunkInput{MakeSequential(std::move(input)), visible[0].options.out()};
  }
  // 2. Otherwise each image passes its own convolutions.
  TrunkInput made;
  if (std::ranges::any_of(visible, &VisiblePart::image)) made.layers = ImageLayers(range);
  LayerRange front = range;
  front.end = range.begin + made.layers;
  std::vector<SequentialPart> branches;
  std::int64_t features = 0;
  for (const VisiblePart& part : visible) {
    std::vector<SequentialPart> branch;
    branch.push_back({"part", MakeObservationPart(part.options)});
    Shape shape = part.options.out();
    if (part.image()) {
      const Status layers = AppendLayers(front, &shape, &branch);
      if (!layers.ok()) return layers.WithContext("part " + part.name);
    }
    features += shape.elements();
    branches.push_back({part.name, MakeSequential(std::move(branch))});
  }
  input.push_back({"parts", MakeConcatenation(std::move(branches))});
  // The remaining layers see a vector.
  made.module = MakeSequential(std::move(input));
  made.shape = {features};
  return made;
}

}  // namespace

// Chooses one of four input layers: normalized, one-hot, stacked images, or scaled. The selection
// of parts follows it, if there are any.
Result<TrunkInput> MakeInputLayer(const ModelSetup& setup, const EnvSpec& env,
                                  const LayerRange& range) {
  const LayerConfig& first = range.layers[range.begin];
  const bool normalize = setup.network.normalize_observations;
  const std::int64_t classes = setup.network.one_hot;
  if ((normalize || classes > 0) && first.type == LayerType::kConv2d) {
    return InvalidArgument(
        "network.{}: images before a conv2d layer are scaled by the environment's own scale; leave "
        "it "
        "out",
        normalize ? "normalize_observations" : "one_hot");
  }
  const Shape shape = NetworkInput(setup, env).shape;
  // Normalization takes precedence over one-hot encoding.
  auto whole = normalize ? MakeNormalizedInput(shape) : MakeInput(env.observation_scale);
  if (!env.parts.empty()) return MakeStructuredInput(setup, env, range, std::move(whole));
  if (!normalize && classes > 0)
    return TrunkInput{MakeOneHotInput(classes), {shape.elements() * classes}};
  if (const auto pictures = PicturesOf(setup, env, first); pictures && !normalize) {
    return TrunkInput{MakePictureInput(env.observation_scale, *pictures), pictures->out()};
  }
  return TrunkInput{std::move(whole), shape};
}

}  // namespace troop
