// Implements UTF-8 validation and the escaping of text for one line.
#include "core/base/utf8.h"

#include <fmt/format.h>

namespace troop {
namespace {

// True if `text` is the start of a sequence that needs more bytes.
bool IsCut(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() >= wanted) return false;
  for (const char c : text.substr(1)) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) return false;
  }
  return true;
}

}  // namespace

// Length of the first character; 0 if it is invalid (RFC 3629, section 4).
std::size_t Utf8Length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char c = at(0);
  if (c < 0x80) return 1;
  const std::size_t n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
  if (c < 0xC2 || c > 0xF4 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and code points beyond U+10FFFF.
  if ((c == 0xE0 && at(1) < 0xA0) || (c == 0xED && at(1) > 0x9F) || (c == 0xF0 && at(1) < 0x90) ||
      (c == 0xF4 && at(1) > 0x8F)) {
    return 0;
  }
  return n;
}

// Control characters are escaped, so that text of others cannot forge lines or terminal codes.
std::string EscapedLine(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

// Invalid bytes become '?'; a character that is cut off at the end is dropped.
std::string PrintableLine(std::string_view text, std::size_t bytes_max) {
  std::string line;
  while (!text.empty() && !IsCut(text)) {
    const std::size_t length = Utf8Length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    // Control characters become spaces, so that words stay apart.
    const bool control = c < 32 || c == 127;
    const std::string_view next = length == 0 ? "?" : control ? " " : text.substr(0, length);
    if (line.size() + next.size() > bytes_max) break;
    line += next;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

}  // namespace troop
