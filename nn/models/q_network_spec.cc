// Implements the translation of a Q-network to its GPU description.
#include "nn/models/q_network_spec.h"

#include <string>
#include <vector>

#include "nn/models/model.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

using cuda::QLayer;
using cuda::QNetworkSpec;

// Finds a layer by the prefix of its parameters: "layers.0.", ….
Result<QLayer> FindLayer(const Module& network, const std::string& name, Activation activation) {
  QLayer layer;
  layer.activation = activation;
  const ParamSpec *weight = nullptr, *bias = nullptr;
  for (const ParamSpec& spec : network.params()) {
    if (spec.name == name + "weight") weight = &spec;
    if (spec.name == name + "bias") bias = &spec;
  }
  if (weight == nullptr || bias == nullptr)
    return InvalidArgument("the network has no parameters \"{}weight\"", name);
  layer.weight = weight->offset;
  layer.bias = bias->offset;
  // For convolutions, the caller replaces the shape.
  layer.linear = {weight->shape.elements() / weight->shape[0], weight->shape[0]};
  return layer;
}

// Rejects what the GPU network does not implement.
Status CheckSupported(const ModelSetup& setup, const EnvSpec& env) {
  const auto only_cpu = [](std::string_view what) {
    return InvalidArgument("{} is only supported on the CPU; set the device to \"cpu\"", what);
  };
  if (setup.network.normalize_observations) return only_cpu("network.normalize_observations");
  if (setup.network.one_hot > 0) return only_cpu("network.one_hot");
  if (setup.network.noisy) return only_cpu("network.noisy");
  if (!env.parts.empty()) return only_cpu("an observation with an action mask or several parts");
  for (const LayerConfig& layer : setup.network.layers) {
    if (layer.type == LayerType::kOwn)
      return only_cpu(fmt::format("the own layer \"{}\" of network.layers", layer.own_type));
    for (const LayerType type :
         {LayerType::kLayerNorm, LayerType::kMaxPool, LayerType::kResidual}) {
      if (layer.type == type)
        return only_cpu(fmt::format("type = \"{}\" in network.layers", EnumName(type)));
    }
    // Convolutions on the GPU have no padding.
    if (layer.padding > 0) return only_cpu("padding in network.layers");
  }
  if (env.observation.dtype != DType::kU8 && env.observation.dtype != DType::kF32)
    return only_cpu("observations of " + std::string(DTypeName(env.observation.dtype)));
  return Status::Ok();
}

}  // namespace

// Shapes follow the layers as in AppendLayers; offsets come from the CPU network's parameters.
Result<QNetworkSpec> QNetworkSpecOf(const ModelSetup& setup, const EnvSpec& env,
                                    const Module& network) {
  TROOP_RETURN_IF_ERROR(CheckSupported(setup, env));
  QNetworkSpec spec;
  const std::vector<LayerConfig> layers = LayersOf(setup);
  const auto pictures = PicturesOf(setup, env, layers[0]);
  Shape shape = pictures ? pictures->out() : NetworkInput(setup, env).shape;
  spec.input = env.observation.dtype;
  spec.input_scale = env.observation_scale;
  spec.input_elements = shape.elements();
  spec.actions = env.action.count;
  spec.numbers = GetValueHead(setup).numbers;
  spec.parameters = ParameterCount(network);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    TROOP_ASSIGN_OR_RETURN(QLayer layer,
                           FindLayer(network, fmt::format("layers.{}.", i), layers[i].activation));
    if (layers[i].type == LayerType::kConv2d) {
      layer.convolution = true;
      layer.conv = {shape[0],          shape[1],         shape[2],
                    layers[i].filters, layers[i].kernel, layers[i].stride};
      shape = {layer.conv.out_height(), layer.conv.out_width(), layer.conv.filters};
    } else {
      shape = {layer.linear.out};
    }
    spec.layers.push_back(layer);
  }
  // The head: linear, or two streams with or without hidden layers.
  if (!setup.network.dueling) {
    TROOP_ASSIGN_OR_RETURN(spec.advantage, FindLayer(network, "head.", Activation::kNone));
    return spec;
  }
  spec.dueling = true;
  TROOP_ASSIGN_OR_RETURN(spec.value, FindLayer(network, "head.value.", Activation::kNone));
  TROOP_ASSIGN_OR_RETURN(spec.advantage, FindLayer(network, "head.advantage.", Activation::kNone));
  if (setup.network.dueling_units == 0) return spec;
  TROOP_ASSIGN_OR_RETURN(spec.value_hidden,
                         FindLayer(network, "head.value.hidden.", Activation::kRelu));
  TROOP_ASSIGN_OR_RETURN(spec.advantage_hidden,
                         FindLayer(network, "head.advantage.hidden.", Activation::kRelu));
  return spec;
}

// TF32 and bf16 products need Ampere or newer.
Result<cuda::Precision> DevicePrecisionOf(const ModelSetup& setup, const cuda::DeviceInfo& info) {
  const NetworkPrecision precision = setup.network.precision;
  if (precision == NetworkPrecision::kFp32) return cuda::Precision::kF32;
  if (info.major < 8) {
    return InvalidArgument(
        "network.precision = \"{}\" needs compute capability 8.0, {} has {}.{}; set \"fp32\"",
        EnumName(precision), info.name, info.major, info.minor);
  }
  return precision == NetworkPrecision::kBf16 ? cuda::Precision::kBF16 : cuda::Precision::kTF32;
}

}  // namespace troop
