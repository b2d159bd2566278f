#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/layers/layers.h"
#include "nn/models/model_setup.h"

// Building blocks of the networks of agents: the input layer, and the layers of a list.
namespace troop {

// Checks that networks support these observations. Errors: kInvalidArgument.
Status CheckObservation(const ModelSetup& setup, const EnvSpec& env);
// Reason why the network may learn little from images; empty if it has conv2d layers, or there are
// no images.
std::string PictureAdvice(const ModelSetup& setup, const EnvSpec& env);

// Images that must be rearranged for conv2d if `first` is the first layer. nullopt: they are in the
// right layout, or invalid, which AppendLayers reports.
std::optional<PictureStack> PicturesOf(const ModelSetup& setup, const EnvSpec& env,
                                       const LayerConfig& first);

// Layers [begin, end) of a list. key: the list's key in the config.
struct LayerRange {
  std::string_view key;
  const std::vector<LayerConfig>& layers;
  std::size_t begin = 0, end = 0;
  std::string library;     // learner.library, for own layers
  bool recurrent = false;  // lstm and gru layers are supported
  float noisy_sigma = 0;   // above 0: linear layers are noisy; their place is the index in the list
};
// Appends the range's layers as "layers.<index>". shape: of the input, then of the output, without
// the batch. Errors: kInvalidArgument.
Status AppendLayers(const LayerRange& range, Shape* shape, std::vector<SequentialPart>* parts);

// Number of leading layers that the images of an observation with several parts pass, each in its
// own copy, before they are flattened: conv2d, max_pool, residual and layer_norm; 0: the first one
// is not conv2d.
std::size_t ImageLayers(const LayerRange& range);
// A part of an observation that the network takes as an input: all but the action mask.
struct VisiblePart {
  std::string name;
  ObservationPartOptions options;
  bool image() const { return options.shape.rank() == 3; }
};
std::vector<VisiblePart> VisibleParts(const ModelSetup& setup, const EnvSpec& env);

// The input layer: [B, ...NetworkInput] → [B, ...shape]. Of an observation with several parts each
// image passes its own copy of the layers before the first one that is neither conv2d nor
// layer_norm; the results and the other parts are concatenated. The network does not take the
// action mask as an input. Errors: kInvalidArgument.
struct TrunkInput {
  std::unique_ptr<Module> module;
  Shape shape;
  std::size_t layers = 0;  // number of the range's layers that the module contains
};
Result<TrunkInput> MakeInputLayer(const ModelSetup& setup, const EnvSpec& env,
                                  const LayerRange& range);

// network.layers; if empty, two linear layers of 64.
std::vector<LayerConfig> LayersOf(const ModelSetup& setup);

}  // namespace troop
