#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

// The subset of {fmt} that the lower folders use, for GPU machines with only CUDA installed: "{}"
// in order; a format spec after a colon is ignored. It comes first in the include path of programs
// that run there; no other program sees it.
namespace fmt {
inline namespace plain {

template <class... Args>
using format_string = std::string_view;

inline std::string Text(std::string_view x) { return std::string(x); }
inline std::string Text(const char* x) { return x; }
inline std::string Text(const std::string& x) { return x; }
inline std::string Text(bool x) { return x ? "true" : "false"; }
inline std::string Text(char x) { return std::string(1, x); }
inline std::string Text(std::integral auto x) { return std::to_string(x); }
inline std::string Text(std::floating_point auto x) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.6g", double(x));
  return text.data();
}

template <class... Args>
std::string format(std::string_view format, const Args&... args) {
  const std::array<std::string, sizeof...(Args) + 1> texts{Text(args)...};
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (i + 1 < format.size() && c == format[i + 1] && (c == '{' || c == '}')) {
      out += format[i++];
    } else if (c == '{') {
      i = std::min(format.find('}', i), format.size());
      if (next < sizeof...(Args)) out += texts[next++];
    } else {
      out += c;
    }
  }
  return out;
}

// Base of Troop's formatters, which no program here uses.
template <class T>
struct formatter;
template <>
struct formatter<std::string_view> {
  template <class Context>
  auto format(std::string_view, Context& context) const {
    return context.out();
  }
};

}  // namespace plain
}  // namespace fmt
