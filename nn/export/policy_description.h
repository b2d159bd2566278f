#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"
#include "core/storage/json.h"
#include "core/tensor/spec.h"
#include "kernels/elementwise/activation.h"
#include "nn/models/model_setup.h"

namespace troop {

// Kind of a layer of an exported policy. The arithmetic is that of the module of the same purpose
// (nn/layers/layers.h, nn/models/value_head.h); it is stated here because other programs implement
// it.
enum class PolicyLayerKind : std::uint8_t {
  kClip,       // y = clip(x, low, high)
  kScale,      // y = factor · x
  kNormalize,  // y = clip((x - mean) / sqrt(variance + 1e-8), ±10); count 0: clip(x, ±10)
  kOneHot,     // y[i, c] = [x[i] = c], c in 0 .. classes - 1
  kImages,     // [stack, h, w, c] → y [h, w, stack · c] = factor · x
  kConv2d,     // NHWC, no padding: weight [filters, kernel, kernel, channels], bias, activation
  kLinear,     // y = activation(weight · x + bias), weight [out, in]; x is flattened
  kLayerNorm,  // last axis: y = activation(weight · (x - mean) / sqrt(variance + 1e-5) + bias)
  kDueling,    // q = v + a - mean(a): nn/layers/layers.h, MakeDuelingHead
  kCategoricalMean,  // [actions, atoms] → [actions]: Σ softmax(x) · atom
  kQuantileMean,     // [actions, atoms] → [actions]: mean(x)
  kActionBounds,     // y = low + (high - low) · (1 + tanh x) / 2
  kClippedBounds,    // y = low + (high - low) · (1 + clip(x, -1, 1)) / 2
  kPadding,          // [h, w, c] → [h + 2 padding, w + 2 padding, c]: zeros around the image
  // [h, w, c] → [h', w', c], h' = ⌊(h + 2 padding - kernel) / stride⌋ + 1: the largest element of
  // each window [kernel, kernel] and channel. Window i begins at row i · stride - padding; elements
  // outside of the image do not count.
  kMaxPool,
  // y = activation(x + conv1(relu(conv0(relu(x))))): two kConv2d of stride 1 with an odd kernel,
  // each after kPadding by (kernel - 1) / 2. Parameters: conv0.weight [c, kernel, kernel, c],
  // conv0.bias [c], conv1.weight, conv1.bias.
  kResidual,
  // One part of an observation: elements [first, first + size) of each frame of [(stack,) n], times
  // factor. An image gives [h, w, stack · c], the oldest frame's channels first; another part
  // [stack · size], one frame after another.
  kPart,
  // Each of `branches` is a list of layers, of which the first is kPart, for the input of this
  // layer; their outputs are flattened and follow each other in y.
  kParts,
  // The last layer of a policy whose observations contain an action mask. The mask of the newest
  // frame, before any layer, is m[a] = frame[first + a]: y[a] = -1e30 if m[a] = 0 and an element of
  // m is not 0, else x[a].
  kActionMask,
  // Recurrent layers of PyTorch (nn.LSTM with the gates i, f, g, o; nn.GRU with r, z, n), one step:
  // [in] → y = h [units]. Parameters: weight_ih [G units, in], weight_hh [G units, units], bias_ih,
  // bias_hh. The recurrent state of a policy has h and then c of each lstm, h of each gru, in the
  // order of the layers; it is 0 at the start of an episode, and a step replaces it.
  kLstm,
  kGru,
};
constexpr auto EnumNames(PolicyLayerKind) {
  return std::to_array<std::string_view>({"clip",
                                          "scale",
                                          "normalize",
                                          "one_hot",
                                          "images",
                                          "conv2d",
                                          "linear",
                                          "layer_norm",
                                          "dueling",
                                          "categorical_mean",
                                          "quantile_mean",
                                          "action_bounds",
                                          "clipped_bounds",
                                          "padding",
                                          "max_pool",
                                          "residual",
                                          "part",
                                          "parts",
                                          "action_mask",
                                          "lstm",
                                          "gru"});
}

// One layer: [in] → [out] of one observation. Members that a kind does not have are 0 or empty.
struct PolicyLayer {
  PolicyLayerKind kind = PolicyLayerKind::kScale;
  std::string tensors;  // prefix of the names of its parameters, without the dot
  Shape in, out;
  Activation activation = Activation::kNone;       // conv2d, linear, layer_norm, residual
  float factor = 1;                                // scale, images, part
  std::int64_t stack = 1;                          // images, part
  std::int64_t first = 0;                          // part, action_mask: element of a frame
  std::int64_t classes = 0;                        // one_hot
  std::int64_t kernel = 0, stride = 0;             // conv2d, max_pool; residual: kernel alone
  std::int64_t padding = 0;                        // padding, max_pool: on each side
  std::int64_t units = 0;                          // dueling: hidden units of each stream; 0: none
  std::int64_t numbers = 1;                        // dueling: outputs per action
  float low = 0, high = 0;                         // clip; categorical_mean: first and last atom
  std::vector<std::vector<PolicyLayer>> branches;  // parts
};

// Everything that computes an agent's greedy action from its observation, except for the values of
// the parameters: the input of later programs, which lack the run's config. Discrete actions:
// the layers give q [actions], and the action is the lowest index of the largest. Continuous
// actions: the layers give the action.
struct PolicyDescription {
  TensorSpec observation;              // of the environment, one frame
  std::vector<ObservationPart> parts;  // names for users; the layers have all that is computed
  std::int64_t frame_stack = 1;        // frames per decision, oldest first; zeros before the first
  ActionSpec action;
  std::vector<PolicyLayer> layers;
  // Elements of the recurrent state; 0: the policy has none.
  std::int64_t state_size() const;
};

// Describes the policy of the network that MakeNetwork makes; tensors have the names of its
// parameters, which are those in weights.safetensors. Errors: as MakeNetwork; kInvalidArgument for
// a text model, or an own layer whose description does not fit it; kFailedPrecondition for an own
// layer without one (OwnLayer::equals).
Result<PolicyDescription> DescribePolicy(const ModelSetup& setup, const EnvSpec& env);

// The description as one line of JSON: the metadata kPolicyKey of a safetensors file, which
// nn/policy_library reads.
std::string EncodePolicy(const PolicyDescription& policy);
inline constexpr char kPolicyKey[] = "troop_policy";
// The names and shapes of the parts of an observation in their order, for users: [{"name", "shape",
// "action_mask": true of a mask alone}].
JsonArray PartsJson(const std::vector<ObservationPart>& parts);

// DescribePolicy and EncodePolicy in one: what each checkpoint has in the metadata of its weights.
// Empty for a text model, which has no policy, and for own layers without a description. Errors:
// the others of DescribePolicy.
Result<std::string> EncodedPolicyOf(const ModelSetup& setup, const EnvSpec& env);

}  // namespace troop
