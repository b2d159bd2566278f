#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/spec.h"
#include "nn/layers.h"

// What the networks of a config are put together from: a layer that takes observations, and the
// layers of a list.
namespace troop {

// Whether networks can take these observations. Errors: kInvalidArgument.
Status CheckObservation(const Config& config, const EnvSpec& env);
// Why the network may learn little of pictures; empty: it takes them as such, or there are none.
std::string PictureAdvice(const Config& config, const EnvSpec& env);

// Whose pictures must be brought into the order that conv2d takes, when `first` is the first layer.
// nullopt: all is as it should be, or wrong, as AppendLayers says.
std::optional<PictureStack> PicturesOf(const Config& config, const EnvSpec& env,
                                       const LayerConfig& first);

// What stands before the layers: [B, ...NetworkInput] → [B, ...shape]. Errors: kInvalidArgument.
struct TrunkInput {
  std::unique_ptr<Module> module;
  Shape shape;
};
Result<TrunkInput> MakeInputLayer(const Config& config, const EnvSpec& env,
                                  const LayerConfig& first);

// Appends layers[begin, end) as "layers.<index>". shape: of what comes in, then of what goes out,
// without the batch. key: what the list is called in the config. Errors: kInvalidArgument.
struct LayerRange {
  std::string_view key;
  const std::vector<LayerConfig>& layers;
  std::size_t begin = 0, end = 0;
};
Status AppendLayers(const LayerRange& range, Shape* shape, std::vector<SequentialPart>* parts);

// network.layers; where there are none, two linear layers of 64.
std::vector<LayerConfig> LayersOf(const Config& config);

}  // namespace troop
