#pragma once

#include <string>

#include "core/config/env_option.h"
#include "core/storage/json.h"

namespace troop {

// Formats the value of an option as JSON or TOML. Both distinguish 1 and 1.0, because Python does.
JsonText OptionJson(const EnvOption& option);
std::string OptionToml(const EnvOption& option);
// Formats a number for both. REQUIRES: finite.
std::string OptionNumber(double value);

}  // namespace troop
