#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "core/config/env_option.h"
#include "kernels/elementwise/activation.h"

namespace troop {

class ConfigVisitor;

// Type of a layer of network.layers.
enum class LayerType : std::uint8_t {
  kLinear,
  kConv2d,
  kLayerNorm,
  kLstm,
  kGru,
  kMaxPool,
  kResidual,
  kOwn,  // a layer that an extension registers under another name
};
constexpr auto EnumNames(LayerType) {
  return std::to_array<std::string_view>(
      {"linear", "conv2d", "layer_norm", "lstm", "gru", "max_pool", "residual", "own"});
}

// Precision of the arithmetic in large layers.
enum class NetworkPrecision : std::uint8_t { kFp32, kTf32, kBf16 };
constexpr auto EnumNames(NetworkPrecision) {
  return std::to_array<std::string_view>({"fp32", "tf32", "bf16"});
}

// One layer of network.layers.
struct LayerConfig {
  LayerType type = LayerType::kLinear;
  std::string own_type;      // name of a layer of type kOwn
  std::int64_t units = 0;    // linear, lstm, gru
  std::int64_t filters = 0;  // conv2d
  std::int64_t kernel = 0;   // conv2d, max_pool, residual
  std::int64_t stride = 1;   // conv2d, max_pool
  std::int64_t padding = 0;  // conv2d, max_pool
  Activation activation = Activation::kRelu;
  std::vector<EnvOption> options;  // own layers
  bool operator==(const LayerConfig&) const = default;
};

// True for layers that take images [height, width, channels] alone.
inline bool IsImageLayer(LayerType type) {
  return type == LayerType::kConv2d || type == LayerType::kMaxPool || type == LayerType::kResidual;
}

inline bool IsRecurrent(LayerType type) {
  return type == LayerType::kLstm || type == LayerType::kGru;
}

// Columns of a network's recurrent state: h and c of each lstm layer, h of each gru layer.
inline std::int64_t StateColumns(std::span<const LayerConfig> layers) {
  std::int64_t columns = 0;
  for (const LayerConfig& layer : layers) {
    if (IsRecurrent(layer.type)) columns += (layer.type == LayerType::kLstm ? 2 : 1) * layer.units;
  }
  return columns;
}

// The network of an agent ([network]).
struct NetworkConfig {
  std::vector<LayerConfig> layers;         // empty: two linear layers of 64
  std::vector<LayerConfig> critic_layers;  // empty: dpg, td3, sac: same as layers; others: none
  double initial_log_std = 0;              // vtrace, ppo: of continuous actions
  bool dueling = true;
  std::int64_t dueling_units = 0;  // hidden units of each dueling stream; 0: none
  bool noisy = false;              // dqn: noisy linear layers explore, instead of ε
  double noisy_sigma = 0.5;        // σ0 of Fortunato et al. 2018
  bool normalize_observations = false;
  std::int64_t one_hot = 0;  // classes per observation element; 0: off
  NetworkPrecision precision = NetworkPrecision::kFp32;
  bool operator==(const NetworkConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LayerConfig& layer, ConfigVisitor& visitor);
void VisitKeys(NetworkConfig& config, ConfigVisitor& visitor);

}  // namespace troop
