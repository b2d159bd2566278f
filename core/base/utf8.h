#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troop {

// Returns the length of the UTF-8 sequence at the start of `text`; 0 if it is invalid (RFC 3629:
// shortest form, no surrogates). REQUIRES: `text` is not empty.
std::size_t Utf8Length(std::string_view text);

// Returns a line for a terminal or a log of at most `bytes_max` bytes, cut between characters.
// Control characters become spaces, bytes that are not UTF-8 become ?. A sequence that is truncated
// at the end of `text` is omitted.
std::string PrintableLine(std::string_view text, std::size_t bytes_max);

// Returns `text` on one line, with control characters, which a terminal would execute, as \n or
// \x1b.
std::string EscapedLine(std::string_view text);

}  // namespace troop
