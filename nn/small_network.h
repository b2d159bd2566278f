#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/config.h"
#include "nn/module.h"

namespace troop {

// A whole network that is small enough to run in one call of hand-written kernels
// (kernels/small_net.h), where a library would spend its time on dispatch.
struct SmallNetworkSpec {
  TensorSpec observation;  // of one item: f32 or u8; [H, W, C] when the first layer is
                           // conv2d, else any shape, flattened
  float observation_scale = 1;
  std::vector<LayerConfig> layers;  // at most one conv2d, and that first
  bool dueling = false;
  std::int64_t dueling_units = 0;  // hidden units (ReLU) of each stream; 0: none
  std::int64_t actions = 0;
};

// nullptr when the network is not small: more than 512 KB of activations per item or 1 MB of
// weights, a conv2d after the first layer, filters that are not 16 or 32, a type that isn't known.
// In: one tensor [B, ...observation]; out: q [B, actions] f32. Always computes in f32: MakePacked
// ignores the precision, and Pack only transposes the weights of small layers (about 1 µs). Padding
// between parameters is neither read nor written. Observations have no gradient.
//
// `params` are those of the general network of the same description, so that names, layout and
// checkpoints are the same. Order: of each layer weight, bias; then the head: (weight, bias) of the
// linear head, or of the value stream ([hidden weight, bias,] output weight, bias) and then the
// same of the advantage stream. REQUIRES: shapes as nn/module.h says for linear and conv2d.
std::unique_ptr<Module> MakeSmallNetwork(const SmallNetworkSpec& spec,
                                         std::span<const ParamSpec> params);

}  // namespace troop
