#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/layer_kernel.h"
#include "nn/module.h"

// The modules that networks are made of. All are functions of one input and one output whose first
// axis is the batch. Inputs of the weighted ones have the precision of their Packed (f32 without
// one): MakeInput makes it so.
namespace troop {

// [B, in…] → [B, units], in… flattened. Parameters: weight [units, in], bias [units].
// The activation is fused into the forward.
std::unique_ptr<Module> MakeLinear(std::int64_t in, std::int64_t units,
                                   Activation activation = Activation::kNone);

// [B, h, w, c] → [B, h', w', filters], h' = (h - kernel) / stride + 1: no padding.
// Parameters: weight [filters, kernel, kernel, c], bias [filters].
// REQUIRES: kernel <= h, w.
struct Conv2dOptions {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t filters = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  Activation activation = Activation::kNone;
};
std::unique_ptr<Module> MakeConv2d(const Conv2dOptions& options);

// The same shape. kNone is refused: there is nothing to do.
std::unique_ptr<Module> MakeActivation(Activation activation);

// Observations, [B, …] u8 or f32, times `scale`, in the network's precision. Has no data gradient.
std::unique_ptr<Module> MakeInput(float scale);

// Observations, [B, shape…] u8 or f32, less their mean and over their standard deviation, element
// by element, clipped to ±10. Parameters, of which nothing is trained: mean, variance (each of the
// shape's elements) and count [1] of what UpdateStatistics saw; until then inputs pass as they are,
// clipped. The count ends at 10^6: from there on old batches are forgotten. Has no data gradient.
std::unique_ptr<Module> MakeNormalizedInput(const Shape& shape);

// Observations, [B, …] u8, i32 or f32, each number of which is one of 0 .. classes - 1: [B, …,
// classes] zeros with a 1 at that class; all zeros for any other number. Has no data gradient.
std::unique_ptr<Module> MakeOneHotInput(std::int64_t classes);

// As MakeInput, of stacked pictures, and as conv2d takes them: [B, stack, h, w, c] → [B, h, w,
// stack·c], the oldest picture's channels first. Where stack or c is 1 the input may lack its axis.
struct PictureStack {
  std::int64_t stack = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 1;
  Shape out() const { return {height, width, stack * channels}; }
};
std::unique_ptr<Module> MakePictureInput(float scale, const PictureStack& pictures);

// Wang et al. 2016, eq. 9: q = v + a - mean(a). [B, in…] → [B, actions · K] f32: of each action K
// numbers, for each of which that holds (Hessel et al. 2018). Each stream has one hidden relu layer
// of `units` (0: none). Parameters, in this order: value.hidden.weight [units, in],
// value.hidden.bias, value.weight [K, units], value.bias, then the same of the advantage stream,
// [actions · K, units]; without hidden units those two are absent and `in` stands for `units`.
std::unique_ptr<Module> MakeDuelingHead(std::int64_t in, std::int64_t units, std::int64_t actions,
                                        std::int64_t numbers = 1);

// What a policy ends with: each number of an action within its bounds, low + (high - low) · (1 +
// tanh x) / 2. [B, A] → [B, A] f32. REQUIRES: as many of both, finite, low <= high.
std::unique_ptr<Module> MakeActionBounds(std::span<const float> low, std::span<const float> high);

// One after the other. Parameter names get the part's name and a dot in front.
struct SequentialPart {
  std::string name;
  std::unique_ptr<Module> module;
};
std::unique_ptr<Module> MakeSequential(std::vector<SequentialPart> parts);

}  // namespace troop
