#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troop {

// Length of the UTF-8 sequence at the start of `text`; 0: there is none (RFC 3629: shortest form,
// no surrogates). REQUIRES: `text` is not empty.
std::size_t Utf8Length(std::string_view text);

// One line for a terminal or a log, of at most `bytes_max` bytes and cut between characters:
// control characters become spaces, bytes that are no UTF-8 become ?. A sequence that the end of
// `text` cuts is left out.
std::string PrintableLine(std::string_view text, std::size_t bytes_max);

// `text` on one line: control characters, which a terminal obeys, are written as \n or \x1b.
std::string EscapedLine(std::string_view text);

}  // namespace troop
