#pragma once

#include <string>
#include <string_view>

namespace troop {

// Format a number or a string as TOML that parses to the same value.
std::string TomlNumber(double value);
std::string TomlString(std::string_view text);

}  // namespace troop
