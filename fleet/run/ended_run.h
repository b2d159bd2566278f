#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"

namespace troop {

// Status of a run whose coordinator cannot be queried, read from the run's files. This is the case
// for ended runs and serial runs.

// The last complete line of a JSON-lines file; empty if there is none, or if that line exceeds 64
// KiB or is not JSON.
std::string LastJsonLine(const std::string& path);
// The state of a run, as far as its files contain it.
struct QuietRun {
  std::string state;      // as returned by StateOfRun (apps/monitor/run_index.h)
  std::string result;     // text of result.json; empty: not written yet
  std::string last_line;  // last line of metrics.jsonl; empty: none
  double time_s = 0;      // when the file with these data was written, in seconds since 1970
  const Config* config = nullptr;
};
// JSON with the keys of ViewJson; members and roles are empty. REQUIRES: `run.config` is set;
// `run.result` is empty or JSON.
std::string QuietRunJson(const QuietRun& run);
// The evaluation of the best checkpoint (evaluator.keep_best), for the member "best" of a status:
// {"score", "episodes", "unix_time"}. nullopt: there is none, or it cannot be read. `run`: the run
// folder.
std::optional<JsonObject> BestScoreJson(Storage* run);
// Human-readable summary of an ended run: one item per line, each ending with a newline.
std::string EndedText(const JsonValue& result, const Config& config);

}  // namespace troop
