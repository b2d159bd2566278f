#pragma once

#include <string_view>

namespace troop::internal {

// What tools/make_unicode_tables.py took from Python's unicodedata, read by text/unicode.cc alone.
extern const std::string_view kUnicodeVersion;
extern const std::string_view kUnicodeData;  // base 64

}  // namespace troop::internal
