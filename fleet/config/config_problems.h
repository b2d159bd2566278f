#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/utf8.h"

namespace troop {

// The origin of a value in a file or on the command line.
struct ConfigLocation {
  std::int64_t line = 0;
  std::string text;   // "run.toml:3", or "command line: replay.alpha=2"
  std::string named;  // key that `text` already contains
  // Returns the place and key for an error line, without repeating the key.
  std::string Of(std::string_view key) const {
    return key == named ? text : fmt::format("{}: {}", text, key);
  }
};

// All problems of a config and its overrides, one line each, in the order of the file. For files
// that are not configs at all, the output is limited to kLinesMax lines and a count of the rest.
class ConfigProblems {
 public:
  static constexpr std::size_t kLinesMax = 50, kLineBytesMax = 1000;

  // Adds a line, escaped and truncated to kLineBytesMax bytes.
  void Add(const ConfigLocation& place, std::string_view key, std::string_view message) {
    std::string line = EscapedLine(fmt::format("{}: {}", place.Of(key), message));
    if (line.size() > kLineBytesMax) line = PrintableLine(line, kLineBytesMax) + "…";
    lines_.emplace_back(place.line, std::move(line));
  }
  bool empty() const { return lines_.empty(); }
  // Returns kInvalidArgument with the lines; REQUIRES: not empty().
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
