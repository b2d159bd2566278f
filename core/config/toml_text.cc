// Implements the formatting of TOML values.
#include "core/config/toml_text.h"

#include <fmt/format.h>

#include <cmath>

namespace troop {
namespace {

constexpr double kExactIntegers = 1e15;  // up to here a double holds every integer

}  // namespace

std::string TomlNumber(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) <= kExactIntegers;
  if (whole) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);  // the shortest text that parses to the same value
}

// A TOML basic string, with escapes for quotes, backslashes and control characters.
std::string TomlString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace troop
