#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/utf8.h"

namespace troop {

// Where a value was given.
struct ConfigPlace {
  std::int64_t line = 0;
  std::string text;   // "run.toml:3", or "command line: replay.alpha=2"
  std::string named;  // the key that `text` names already
  std::string Of(std::string_view key) const {
    return key == named ? text : fmt::format("{}: {}", text, key);
  }
};

// All that is wrong with a config and its overrides, one line each in the order of the file.
class ConfigProblems {
 public:
  void Add(const ConfigPlace& place, std::string_view key, std::string_view message) {
    lines_.emplace_back(place.line, EscapedLine(fmt::format("{}: {}", place.Of(key), message)));
  }
  bool empty() const { return lines_.empty(); }
  Status ToStatus() {
    std::ranges::stable_sort(lines_, {}, &std::pair<std::int64_t, std::string>::first);
    std::string text;
    for (const auto& [line, message] : lines_) text += (text.empty() ? "" : "\n") + message;
    return Status(Code::kInvalidArgument, std::move(text));
  }

 private:
  std::vector<std::pair<std::int64_t, std::string>> lines_;
};

}  // namespace troop
