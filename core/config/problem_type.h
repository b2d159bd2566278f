#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Kind of a supervised model's prediction for a text; names as in Hugging Face's config.json.
//   kSingleLabel: one of the classes (softmax, cross entropy)
//   kMultiLabel:  any number of the classes (a sigmoid and binary cross entropy for each)
//   kRegression:  a number (mean squared error)
enum class ProblemType : std::uint8_t { kSingleLabel = 0, kMultiLabel = 1, kRegression = 2 };
constexpr auto EnumNames(ProblemType) {
  return std::to_array<std::string_view>(
      {"single_label_classification", "multi_label_classification", "regression"});
}

}  // namespace troop
