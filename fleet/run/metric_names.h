#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/storage/json.h"

namespace troop {

// Returns the current name of a metric that runs of config version 1 recorded under another name
// ("learner/q" is learner/q_mean now), also with the name of a replay table
// ("replay/second/repeated"); other names are returned unchanged.
std::string CurrentMetricName(std::string_view name);

// Parses a line of metrics.jsonl that this or an earlier version wrote; members have their current
// names. Errors: those of ParseJson.
Result<JsonValue> ParseMetricsLine(std::string_view line);

// Returns a line of metrics.jsonl, as Troop writes it, with the current names of its members.
std::string CurrentMetricsLine(std::string_view line);

}  // namespace troop
