// Implements the texts of ranges and choices.
#include "core/config/config_visitor.h"

#include <fmt/format.h>

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
  return text;
}

}  // namespace troop
