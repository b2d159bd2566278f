#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/onednn/layer_kernel.h"
#include "nn/module.h"

// The modules that networks consist of. Each has one input and one output, whose first axis is the
// batch. Inputs of weighted modules must have the precision of their Packed (f32 without one),
// which MakeInput produces.
namespace troop {

// Linear layer: [B, in…] → [B, units], in… flattened. Parameters: weight [units, in], bias [units].
// The activation is fused into the forward.
std::unique_ptr<Module> MakeLinear(std::int64_t in, std::int64_t units,
                                   Activation activation = Activation::kNone);

// Noisy linear layer with factorised Gaussian noise (Fortunato et al. 2018, arXiv:1706.10295, sec.
// 3): y = activation((weight + weight_sigma ⊙ ε_out ε_inᵀ) x + bias + bias_sigma ⊙ ε_out), [B, in…]
// → [B, units]. All rows of a pass have the noise of StepContext::noise; without it, y is that of a
// linear layer with `weight` and `bias`. Parameters: weight [units, in] and bias [units], as those
// of a linear layer; weight_sigma and bias_sigma, of the same shapes, which begin at sigma /
// sqrt(in). A pass with noise costs two linear layers.
//
// Noise: ε = f(x), f(x) = sign(x) sqrt(|x|), of the normal numbers x of the stream {noise.seed,
// Purpose::kNoisyLayer, place, noise.draw}: first those of the inputs, then those of the units.
struct NoisyLinearOptions {
  std::int64_t in = 0;
  std::int64_t units = 0;
  Activation activation = Activation::kNone;
  float sigma = 0.5f;
  std::uint64_t place = 0;  // in the network; layers with different places have independent noise
};
std::unique_ptr<Module> MakeNoisyLinear(const NoisyLinearOptions& options);

// Convolution: [B, h, w, c] → [B, h', w', filters], h' = (h + 2 padding - kernel) / stride + 1.
// Parameters: weight [filters, kernel, kernel, c / groups], and with `bias` bias [filters]. The
// filters of a group see the channels of that group alone. REQUIRES: kernel <= h + 2 padding, w + 2
// padding; groups divide c and filters.
struct Conv2dOptions {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t filters = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  Activation activation = Activation::kNone;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = true;  // false: a batch normalization follows, which has one
  // The initial weights are N(0, deviation²); 0: uniform, PyTorch's default.
  float deviation = 0;
};
std::unique_ptr<Module> MakeConv2d(const Conv2dOptions& options);

// Zeros around an image: [B, h, w, c] → [B, h + 2 padding, w + 2 padding, c].
struct ImagePadding {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t padding = 0;
  Shape out() const { return {height + 2 * padding, width + 2 * padding, channels}; }
};
std::unique_ptr<Module> MakePadding(const ImagePadding& padding);

// Maximum over windows: [B, h, w, c] → [B, h', w', c], h' = (h + 2 padding - kernel) / stride + 1.
// Equal to PyTorch's nn.MaxPool2d: padding never wins. REQUIRES: 2 padding <= kernel <= h + 2
// padding, w + 2 padding.
struct MaxPoolOptions {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  Shape out() const;  // without the batch
};
std::unique_ptr<Module> MakeMaxPool(const MaxPoolOptions& options);

// Residual block of IMPALA's deep network (Espeholt et al. 2018, figure 3): y = activation(x +
// conv1(relu(conv0(relu(x))))), with convolutions that keep the shape [B, h, w, c]. Parameters:
// conv0.weight [c, kernel, kernel, c], conv0.bias [c], then those of conv1. REQUIRES: odd kernel.
struct ResidualOptions {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t kernel = 3;
  Activation activation = Activation::kNone;
};
std::unique_ptr<Module> MakeResidual(const ResidualOptions& options);

// Layer normalization (Ba et al. 2016, arXiv:1607.06450) over the last axis: [B, …, n] → [B, …, n],
// y = activation(weight (x - mean) / sqrt(variance + kLayerNormEpsilon) + bias). After a
// convolution that axis is the channels of a pixel. Parameters: weight [n], bias [n]. REQUIRES: n
// >= 1.
inline constexpr float kLayerNormEpsilon = 1e-5f;
std::unique_ptr<Module> MakeLayerNorm(std::int64_t n, Activation activation = Activation::kNone);

// Recurrent layers over the sequences of StepContext::sequences: [B, in…] → [B, units], the h of
// each step. Equal to PyTorch's nn.LSTM and nn.GRU with one layer. Parameters: weight_ih [G units,
// in], weight_hh [G units, units], bias_ih, bias_hh [G units]. The state has columns from
// `state_column` on. The gradient ends at the state, so backpropagation through time is truncated
// to the sequences of the batch.
struct RecurrentOptions {
  std::int64_t in = 0;
  std::int64_t units = 0;
  std::int64_t state_column = 0;
};
// LSTM (Hochreiter & Schmidhuber 1997): G = 4 gates, i, f, g, o; 2 units columns: h, then c.
std::unique_ptr<Module> MakeLstm(const RecurrentOptions& options);
// GRU (Cho et al. 2014): G = 3 gates, r, z, n; units columns: h.
std::unique_ptr<Module> MakeGru(const RecurrentOptions& options);

// Standalone activation; keeps the shape. REQUIRES: not kNone.
std::unique_ptr<Module> MakeActivation(Activation activation);

// Input layer: observations [B, …] u8 or f32, times `scale`, in the network's precision. Has no
// data gradient.
std::unique_ptr<Module> MakeInput(float scale);

// Normalizing input layer: observations [B, shape…] u8 or f32, minus their mean and divided by
// their standard deviation, elementwise, clipped to ±10. Parameters, none of them trained: mean,
// variance (each with the shape's elements) and count [1] of the observations in UpdateStatistics;
// before any, inputs are only clipped. The count stops at 10^6; from then on the weight of old
// batches decays. Has no data gradient.
std::unique_ptr<Module> MakeNormalizedInput(const Shape& shape);

// One-hot input layer: observations [B, …] u8, i32 or f32 with values in 0 .. classes - 1 → [B, …,
// classes]; all zeros for any other value. Has no data gradient.
std::unique_ptr<Module> MakeOneHotInput(std::int64_t classes);

// Input layer for stacked images, in the layout of conv2d: [B, stack, h, w, c] → [B, h, w,
// stack·c], the oldest image's channels first. If stack or c is 1, the input may lack that axis.
struct PictureStack {
  std::int64_t stack = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 1;
  Shape out() const { return {height, width, stack * channels}; }
};
std::unique_ptr<Module> MakePictureInput(float scale, const PictureStack& pictures);

// Selects one part of structured observations: [B, stack, n] or, for a stack of 1, [B, n] → the
// elements [first, first + shape.elements()) of each, times `scale`. Parts [h, w, c] → [B, h, w,
// stack·c], the oldest frame's channels first; parts of another rank → [B, stack·elements]. Has no
// data gradient.
struct ObservationPartOptions {
  std::int64_t stack = 1;
  std::int64_t width = 0;  // n, elements of a frame
  std::int64_t first = 0;
  Shape shape;
  float scale = 1;
  Shape out() const;  // without the batch
};
std::unique_ptr<Module> MakeObservationPart(const ObservationPartOptions& options);

// Dueling head (Wang et al. 2016, eq. 9): q = v + a - mean(a). [B, in…] → [B, actions · K] f32: K
// outputs per action, to each of which the equation applies (Hessel et al. 2018). Each stream has
// one hidden relu layer of `units` (0: none). Parameters, in this order: value.hidden.weight
// [units, in], value.hidden.bias, value.weight [K, units], value.bias, then the advantage stream's
// likewise, [actions · K, units]; without hidden units those two are absent and `in` replaces
// `units`.
std::unique_ptr<Module> MakeDuelingHead(std::int64_t in, std::int64_t units, std::int64_t actions,
                                        std::int64_t numbers = 1);

// Dueling head of noisy linear layers: as MakeDuelingHead, where each parameter is followed by
// those that a noisy layer adds (value.hidden.weight_sigma, …). The places of the layers are
// value.hidden: `place`, value: place + 1, advantage.hidden: place + 2, advantage: place + 3.
struct NoisyDuelingOptions {
  std::int64_t in = 0;
  std::int64_t units = 0;
  std::int64_t actions = 0;
  std::int64_t numbers = 1;
  float sigma = 0.5f;
  std::uint64_t place = 0;
};
std::unique_ptr<Module> MakeNoisyDuelingHead(const NoisyDuelingOptions& options);

// Head of a Gaussian policy: [B, in…] → [B, 2A] f32, the means of the A action dimensions, then the
// logarithms of their standard deviations (nn/models/squashed_gaussian.h). Parameters, in this
// order: weight [A, in] and bias [A] of the means, log_std.weight and log_std.bias.
std::unique_ptr<Module> MakeGaussianHead(std::int64_t in, std::int64_t actions);

// Head of an actor-critic with discrete actions: [B, in…] → [B, A + 1] f32, the logits of the A
// actions, then the value of the observation. Parameters, in this order: weight [A, in] and bias
// [A] of the logits, value.weight [1, in] and value.bias.
std::unique_ptr<Module> MakeActorCriticHead(std::int64_t in, std::int64_t actions);

// Output layer of a policy, which maps each action dimension into its bounds: low + (high - low) ·
// (1 + tanh x) / 2. [B, A] → [B, A] f32. REQUIRES: equal sizes, finite, low <= high.
std::unique_ptr<Module> MakeActionBounds(std::span<const float> low, std::span<const float> high);

// Hides the discrete actions that an observation does not allow: the outputs of `network`, [B,
// columns] f32, are replaced by kMaskedOutput where the mask is 0, and have no gradient there. The
// mask is the elements [first, first + actions) of an input, and in a stack of frames those of the
// newest frame. Action a has the outputs [a·numbers, (a + 1)·numbers). A mask without
// any allowed action, as after the end of an episode, hides nothing. So the largest q-value, its
// maximum in a target, log-probabilities and entropies are those of the allowed actions (Huang &
// Ontañón 2020, arXiv:2006.14171).
struct ActionMaskOptions {
  std::int64_t stack = 1;
  std::int64_t width = 0;  // elements of a frame
  std::int64_t first = 0;  // element of a frame at which the mask begins
  std::int64_t actions = 0;
  std::int64_t numbers = 1;
};
std::unique_ptr<Module> MakeActionMask(std::unique_ptr<Module> network,
                                       const ActionMaskOptions& options);
// Far below every value, and finite, so that products with 0 stay 0.
inline constexpr float kMaskedOutput = -1e30f;
// True for an output that an action mask replaced.
inline bool IsMasked(float output) { return output <= kMaskedOutput / 2; }

// Modules applied in sequence. Parameter names are prefixed with the part's name and a dot.
struct SequentialPart {
  std::string name;
  std::unique_ptr<Module> module;
};
std::unique_ptr<Module> MakeSequential(std::vector<SequentialPart> parts);

// The outputs of several modules for one input, concatenated: [B, …] → [B, Σ features], each output
// flattened. Has no data gradient. Parameter names are prefixed as in a sequence.
std::unique_ptr<Module> MakeConcatenation(std::vector<SequentialPart> parts);

}  // namespace troop
