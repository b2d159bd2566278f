#pragma once

#include <string>
#include <string_view>

#include "core/config.h"
#include "core/json.h"

namespace troop {

// A run that answers no requests, read from its files: one that has ended, or a serial one.

// The last whole line of a file of JSON lines; empty: there is none, or none of 64 KiB at most.
std::string LastJsonLine(const std::string& path);
// What a run is without being asked.
struct QuietRun {
  std::string state;      // as StateOfRun
  std::string result;     // the text of result.json; empty: it has none yet
  std::string last_line;  // of metrics.jsonl; empty: none
  double time_s = 0;      // of what is told, since 1970
  const Config* config = nullptr;
};
// The keys of ViewJson, with no members and roles. REQUIRES: `run.result` is empty or JSON.
std::string QuietRunJson(const QuietRun& run);
// How it ended, a line an item; each line ends with a line break.
std::string EndedText(const JsonValue& result, const Config& config);

}  // namespace troop
