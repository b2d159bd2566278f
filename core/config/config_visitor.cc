// Implements the texts of ranges and choices.
#include "core/config/config_visitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/config/toml_text.h"

namespace troop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

// Non-finite values are never valid, even in an unbounded range.
bool ConfigRange::Contains(double value) const {
  if (!std::isfinite(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string ConfigRange::ToString() const {
  if (low == -kInfinity && high == kInfinity) return "";
  // The technical limit kConfigMany is not shown.
  if (high == kInfinity || high == kConfigMany) {
    return fmt::format("{} {}", low_open ? ">" : ">=", TomlNumber(low));
  }
  return fmt::format("{}{}, {}{}", low_open ? "(" : "[", TomlNumber(low), TomlNumber(high),
                     high_open ? ")" : "]");
}

std::string ConfigKeyInfo::RangeText() const {
  if (choices.empty()) return range.ToString();
  std::string text = "one of ";
  if (choices.size() == 1) text = "only ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format("{}\"{}\"", i > 0 ? ", " : "", choices[i]);
  }
  return text + (own_names ? ", or one of an extension" : "");
}

bool IsOwnName(std::string_view name) {
  constexpr std::size_t kNameMax = 64;
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kNameMax && name[0] >= 'a' && name[0] <= 'z' &&
         std::ranges::all_of(name, good);
}

}  // namespace troop
