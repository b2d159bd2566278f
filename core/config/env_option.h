#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace troop {

// One key of a table whose names the config does not define ([env.options], [learner.options]),
// passed on unchanged.
struct EnvOption {
  // A list or a table as JSON text in the format of option_value.h; without null.
  struct Json {
    std::string text;
    bool operator==(const Json&) const = default;
  };
  std::string name;
  std::variant<bool, std::int64_t, double, std::string, Json> value;
  bool operator==(const EnvOption&) const = default;
};

}  // namespace troop
