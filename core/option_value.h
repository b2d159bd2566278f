#pragma once

#include <string>

#include "core/config.h"

namespace troop {

// The value of an option as JSON and as TOML. Both keep apart 1 and 1.0, which Python takes
// differently.
std::string OptionJson(const EnvOption& option);
std::string OptionToml(const EnvOption& option);
// As both write a number. REQUIRES: it is finite.
std::string OptionNumber(double value);

}  // namespace troop
