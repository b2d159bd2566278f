// Implements the conversion of environment options to JSON and TOML.
#include "core/config/option_value.h"

#include <fmt/format.h>

#include <vector>

#include "core/base/check.h"
#include "core/config/toml_text.h"

namespace troop {
namespace {

// Converts JSON to TOML; REQUIRES: no null.
std::string TomlOf(const JsonValue& value) {
  std::vector<std::string> parts;
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      break;
    case JsonValue::Kind::kBool:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::kNumber:
      return value.integer ? fmt::format("{}", *value.integer) : OptionNumber(value.number);
    case JsonValue::Kind::kString:
      return TomlString(value.string);
    case JsonValue::Kind::kArray:
      for (const JsonValue& one : value.array) parts.push_back(TomlOf(one));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case JsonValue::Kind::kObject:
      for (const auto& [name, one] : value.object) {
        parts.push_back(fmt::format("{} = {}", TomlString(name), TomlOf(one)));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  TROOP_CHECK(false, "an option contains null, which TOML can't represent");
  return {};
}

}  // namespace

// Appends .0 to integral values, so that they stay floats.
std::string OptionNumber(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// An option as JSON, for the worker protocol.
JsonText OptionJson(const EnvOption& option) {
  if (const auto* json = std::get_if<EnvOption::Json>(&option.value)) {
    return JsonText::Raw(json->text);
  }
  if (const auto* text = std::get_if<std::string>(&option.value)) return *text;
  if (const auto* number = std::get_if<double>(&option.value)) {
    return JsonText::Raw(OptionNumber(*number));
  }
  if (const auto* whole = std::get_if<std::int64_t>(&option.value)) return *whole;
  return std::get<bool>(option.value);
}

// An option as TOML. Only lists and tables need a conversion; other values are equal in both.
std::string OptionToml(const EnvOption& option) {
  if (const auto* text = std::get_if<std::string>(&option.value)) return TomlString(*text);
  if (!std::holds_alternative<EnvOption::Json>(option.value)) return OptionJson(option).str();
  const Result<JsonValue> json = ParseJson(OptionJson(option).str());
  TROOP_CHECK(json.ok(), "an option is not JSON: {}", json.status().message());
  return TomlOf(*json);
}

}  // namespace troop
