#pragma once

#include <string>
#include <string_view>

// The parts of generated C files that do not depend on a policy's sizes (nn/export/c_policy.h).
namespace troop {

// Functions of the layers, of which a file has only those that it calls. A function comes after
// those that it calls itself, so that the text in this order compiles.
enum class CFunction : int {
  kFinite,
  kClip,
  kScale,
  kNormalize,
  kOneHot,
  kImages,
  kLinear,
  kConv2d,
  kRelu,
  kTanh,  // of one value
  kTanhAll,
  kInverseRoot,
  kLayerNorm,
  kDueling,
  kExp,
  kCategoricalMean,
  kQuantileMean,
  kActionBounds,
  kClippedBounds,
  kPad,
  kMaxPool,
  kAdd,
  kPart,
  kCopy,
  kHide,
  kSigmoid,  // of one value
  kLstm,
  kGru,
};
inline constexpr int kCFunctions = int(CFunction::kGru) + 1;

// The definition. `@` stands for the prefix of all names, and `@@` for the C type of observations.
std::string_view TextOf(CFunction function);
// Replaces the two placeholders.
std::string FillPlaceholders(std::string_view text, std::string_view name, std::string_view type);

}  // namespace troop
