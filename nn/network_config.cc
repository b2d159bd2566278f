// Declares the config keys of the network of an agent.
#include "nn/network_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

// Nouns for messages about the lists of layers.
constexpr ConfigListKind kLayerKind{.entry = "layer",
                                    .example = "{type = \"linear\", units = 64}",
                                    .required = "type",
                                    .required_example = "type = \"linear\" or type = \"conv2d\"",
                                    .zero_means_unused = true};

}  // namespace

void VisitKeys(NetworkConfig& c, ConfigVisitor& v) {
  v.Visit(
      {"network.layers",
       "Layers between observation and head (dpg, td3, sac: of the policy); empty means two linear "
       "layers of 64 units."},
      kLayerKind, c.layers, VisitKeys);
  v.Visit({"network.critic_layers",
           "dpg, td3 and sac: layers of a critic, whose first linear layer also takes the action; "
           "empty means network.layers. vtrace and ppo: layers of a separate network of the value; "
           "empty means that policy and value share network.layers."},
          kLayerKind, c.critic_layers, VisitKeys);
  v.Visit({"network.initial_log_std",
           "vtrace and ppo with continuous actions: initial logarithm of the policy's standard "
           "deviation, in halves of the action range; learned, one per action dimension.",
           Between(-20, 2)},
          c.initial_log_std);
  v.Visit({"network.dueling",
           "Separate streams for the state value and the action advantages (Wang et al. 2016)."},
          c.dueling);
  v.Visit({"network.dueling_units", "Hidden units of each dueling stream; 0 means no hidden layer.",
           Between(0, 1 << 20)},
          c.dueling_units);
  v.Visit(
      {"network.noisy",
       "dqn: noisy linear layers (NoisyNet, Fortunato et al. 2018), whose learned noise explores "
       "in place of ε; all linear layers of both dueling streams, or without dueling all linear "
       "layers. Evaluations and exports use their means. On the CPU only."},
      c.noisy);
  v.Visit(
      {"network.noisy_sigma",
       "Initial standard deviation of the noise of noisy layers, times the root of the number of "
       "inputs of the layer: σ0 of Fortunato et al. 2018.",
       LeftOpen(0, 10)},
      c.noisy_sigma);
  v.Visit({"network.normalize_observations",
           "Normalize each element of an observation by its running mean and standard deviation, "
           "and clip the result to [-10, 10]. The statistics come from sampled batches and are "
           "published with the weights. For vectors only; images are already scaled."},
          c.normalize_observations);
  v.Visit({"network.one_hot",
           "Number of classes for one-hot encoding integer observations (out-of-range values "
           "encode as zeros); 0 disables it. For vectors only.",
           Between(0, 1 << 16)},
          c.one_hot);
  v.Visit(
      {.name = "network.precision",
       .doc = "Precision of the arithmetic in large layers; parameters are always fp32. \"tf32\" "
              "uses tensor cores with a 10-bit mantissa on a GPU and is fp32 on the CPU."},
      c.precision);
}

void VisitKeys(LayerConfig& layer, ConfigVisitor& v) {
  v.Visit(
      {.name = "type",
       .doc =
           "Type of the layer; conv2d, max_pool and residual layers, which take images, precede "
           "linear ones. residual adds two convolutions of its input to the input, as in "
           "IMPALA's deep network (Espeholt et al. 2018): give it activation = \"none\" unless a "
           "layer of another type follows. layer_norm normalizes the "
           "last axis of its input (Ba et al. 2016): give the layer before it activation = "
           "\"none\". lstm (Hochreiter & Schmidhuber 1997) and gru (Cho et al. 2014) remember "
           "earlier steps of the episode, in the networks of r2d2, pqn, vtrace and ppo; they "
           "have no "
           "activation. Other names are layers of an extension (learner.library)."},
      layer.type, layer.own_type);
  v.Visit({"units", "linear, lstm, gru, and own layers that have units: number of outputs.",
           Between(1, 1 << 20)},
          layer.units);
  v.Visit({"filters", "conv2d: number of output channels.", Between(1, 65536)}, layer.filters);
  v.Visit({"kernel",
           "conv2d, max_pool, residual: height and width of the filters or windows in pixels.",
           Between(1, 1024)},
          layer.kernel);
  v.Visit({"stride", "conv2d, max_pool: distance between outputs in pixels.", Between(1, 1024)},
          layer.stride);
  v.Visit({"padding",
           "conv2d, max_pool: pixels added on each side of the image. They are 0 for conv2d, and "
           "never the maximum for max_pool.",
           Between(1, 512)},
          layer.padding);
  v.Visit({.name = "activation", .doc = "Activation function after the layer."}, layer.activation);
  v.Visit({"options", "Options of an own layer, passed unchanged to its factory."}, layer.options);
}

}  // namespace troop
