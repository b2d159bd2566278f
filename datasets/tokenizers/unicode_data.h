#pragma once

#include <string_view>

namespace troop::internal {

// Tables that tools/make_unicode_tables.py took from Python's unicodedata; only
// datasets/tokenizers/unicode.cc reads them.
extern const std::string_view kUnicodeVersion;
extern const std::string_view kUnicodeData;  // base 64

}  // namespace troop::internal
