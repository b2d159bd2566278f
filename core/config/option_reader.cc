// Implements typed access to a table of options, with the errors of values and names.
#include "core/config/option_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/edit_distance.h"
#include "core/base/utf8.h"
#include "core/config/option_value.h"

namespace troop {

// Each reading records the name, whether the table has it or not: these are the known names.
const EnvOption* OptionReader::Find(std::string_view name) {
  if (std::ranges::find(read_, name) == read_.end()) read_.emplace_back(name);
  const auto found = std::ranges::find(options_, name, &EnvOption::name);
  return found == options_.end() ? nullptr : &*found;
}

// Only the first error is kept: later ones may follow from it.
void OptionReader::Refuse(const EnvOption& option, std::string_view type,
                          const ConfigRange& range) {
  if (!invalid_.ok()) return;
  constexpr std::size_t kShownMax = 100;  // bytes of a value in a message
  const std::string allowed = range.ToString();
  invalid_ =
      InvalidArgument("{}: {} = {} is not {}{}{}", key_, PrintableLine(option.name, kShownMax),
                      PrintableLine(OptionToml(option), kShownMax), type,
                      allowed.empty() ? "" : " in the range ", allowed);
}

// A number with a fraction of 0 is not an integer: TOML distinguishes 1 and 1.0.
std::int64_t OptionReader::Integer(std::string_view name, std::int64_t otherwise,
                                   const ConfigRange& range) {
  const EnvOption* const option = Find(name);
  if (option == nullptr) return otherwise;
  const auto* const value = std::get_if<std::int64_t>(&option->value);
  if (value != nullptr && range.Contains(double(*value))) return *value;
  Refuse(*option, "an integer", range);
  return otherwise;
}

// An integer is a number, too.
double OptionReader::Number(std::string_view name, double otherwise, const ConfigRange& range) {
  const EnvOption* const option = Find(name);
  if (option == nullptr) return otherwise;
  const auto* const whole = std::get_if<std::int64_t>(&option->value);
  const auto* const value = std::get_if<double>(&option->value);
  if (whole != nullptr && range.Contains(double(*whole))) return double(*whole);
  if (value != nullptr && range.Contains(*value)) return *value;
  Refuse(*option, "a number", range);
  return otherwise;
}

bool OptionReader::Flag(std::string_view name, bool otherwise) {
  const EnvOption* const option = Find(name);
  if (option == nullptr) return otherwise;
  if (const auto* const value = std::get_if<bool>(&option->value)) return *value;
  Refuse(*option, "true or false");
  return otherwise;
}

std::string OptionReader::Text(std::string_view name, std::string_view otherwise) {
  const EnvOption* const option = Find(name);
  if (option == nullptr) return std::string(otherwise);
  if (const auto* const value = std::get_if<std::string>(&option->value)) return *value;
  Refuse(*option, "a string");
  return std::string(otherwise);
}

Status OptionReader::Values() const { return invalid_; }

// A near name is the likely meaning of a mistyped one; else all names are listed.
Status OptionReader::Finish() const {
  TROOP_RETURN_IF_ERROR(invalid_);
  for (const EnvOption& option : options_) {
    if (std::ranges::find(read_, option.name) != read_.end()) continue;
    const std::string near = Nearest(option.name, read_);
    const std::string hint = read_.empty() ? "there are none; omit it"
                             : near.empty()
                                 ? fmt::format("the options are {}", fmt::join(read_, ", "))
                                 : fmt::format("the nearest is {}", near);
    return InvalidArgument("{}: {} is an unknown option; {}", key_, PrintableLine(option.name, 100),
                           hint);
  }
  return Status::Ok();
}

}  // namespace troop
