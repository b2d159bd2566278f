#pragma once

#include <fmt/format.h>

#include <string_view>

#include "core/config/enum_names.h"

// Formats a value of an enum with names as its name.
template <troop::NamedEnum E>
struct fmt::formatter<E> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(E value, Context& context) const {
    return fmt::formatter<std::string_view>::format(troop::EnumName(value), context);
  }
};
