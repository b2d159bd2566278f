#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace troop {

// An enum whose values 0, 1, 2, ... have names: its namespace declares a constexpr function
// EnumNames(E) that returns the names in the order of the values. This table is the only place
// that lists them; config keys, messages and JSON use EnumName and ParseEnum.
template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames(E{});
};

// Returns the name of a value. REQUIRES: one of the enum's values.
template <NamedEnum E>
constexpr std::string_view EnumName(E value) {
  return EnumNames(E{})[static_cast<std::size_t>(value)];
}

// Returns the value with this name; nullopt if there is none.
template <NamedEnum E>
constexpr std::optional<E> ParseEnum(std::string_view name) {
  const auto names = EnumNames(E{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace troop
