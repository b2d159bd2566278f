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

// All that is wrong with a config and its overrides, one line each in the order of the file. Of a
// file that is no config at all the first kLinesMax lines say so, and how many are left.
class ConfigProblems {
 public:
  static constexpr std::size_t kLinesMax = 50, kLineBytesMax = 1000;

  void Add(const ConfigPlace& place, std::string_view key, std::string_view message) {
    std::string line = EscapedLine(fmt::format("{}: {}", place.Of(key), message));
    if (line.size() > kLineBytesMax) line = PrintableLine(line, kLineBytesMax) + "…";
    lines_.emplace_back(place.line, std::move(line));
  }
  bool empty() const { return lines_.empty(); }
  Status ToStatus() {
    std::ranges::stable_sort(lines_, {}, &std::pair<std::int64_t, std::string>::first);
    std::string text;
    const std::size_t told = std::min(lines_.size(), kLinesMax);
    for (std::size_t i = 0; i < told; ++i) text += (text.empty() ? "" : "\n") + lines_[i].second;
    if (told < lines_.size()) text += fmt::format("\nand {} more like these", lines_.size() - told);
    return Status(Code::kInvalidArgument, std::move(text));
  }

 private:
  std::vector<std::pair<std::int64_t, std::string>> lines_;
};

}  // namespace troop
