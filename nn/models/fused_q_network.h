#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/module.h"
#include "nn/network_config.h"

namespace troop {

// Description of a network that is small enough to run in one call of hand-written kernels
// (kernels/fused_mlp/fused_network.h), where a library would mostly spend time on dispatch.
struct FusedNetworkSpec {
  TensorSpec observation;  // of one item: f32 or u8; [H, W, C] if the first layer is
                           // conv2d, else any shape, flattened
  float observation_scale = 1;
  std::vector<LayerConfig> layers;  // at most one conv2d, which must be first
  bool dueling = false;
  std::int64_t dueling_units = 0;  // hidden units (ReLU) of each stream; 0: none
  std::int64_t actions = 0;
};

// Creates the network, or returns nullptr if it is not small: more than 512 KB of activations per
// item or 1 MB of weights, a conv2d after the first layer, filters other than 16 or 32, an unknown
// layer type. In: one tensor [B, ...observation]; out: q [B, actions] f32. Always computes in f32:
// MakePacked ignores the precision, and Pack only transposes the weights of small layers (about 1
// µs). Padding between parameters is neither read nor written. Observations have no gradient.
//
// `params` are those of the equivalent general network, so that names, layout and checkpoints are
// equal. Order: weight and bias of each layer; then the head: (weight, bias) of the linear head, or
// the value stream ([hidden weight, bias,] output weight, bias) followed by the advantage stream
// likewise. REQUIRES: shapes of linear and conv2d as in nn/module.h.
std::unique_ptr<Module> MakeFusedNetwork(const FusedNetworkSpec& spec,
                                         std::span<const ParamSpec> params);

}  // namespace troop
