#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

class ConfigVisitor;

// One layer of network.layers.
struct LayerConfig {
  std::string type;          // "linear" | "conv2d"
  std::int64_t units = 0;    // linear
  std::int64_t filters = 0;  // conv2d
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::string activation = "relu";  // "relu" | "tanh" | "none"
  bool operator==(const LayerConfig&) const = default;
};

// The network of an agent ([network]).
struct NetworkConfig {
  std::vector<LayerConfig> layers;         // empty: two linear layers of 64
  std::vector<LayerConfig> critic_layers;  // dpg; empty: same as layers
  bool dueling = true;
  std::int64_t dueling_units = 0;  // hidden units of each dueling stream; 0: none
  bool normalize_observations = false;
  std::int64_t one_hot = 0;        // classes per observation element; 0: off
  std::string precision = "fp32";  // "fp32" | "bf16"
  bool operator==(const NetworkConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LayerConfig& layer, ConfigVisitor& visitor);
void VisitKeys(NetworkConfig& config, ConfigVisitor& visitor);

}  // namespace troop
