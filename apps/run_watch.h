#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/metric_curve.h"
#include "apps/status_asker.h"
#include "core/config.h"
#include "core/json.h"
#include "core/status.h"

namespace troop {

// Which members, and in which order.
struct MemberQuery {
  std::string role, text, sort = "role";  // text: part of a name or host; sort: a column
  bool descending = false;
  std::size_t offset = 0, limit = 50;
};

// One run as people look at it: everything as JSON, of bounded size whatever the run's, of its
// folder's files and of what its coordinator said last. Owner: one thread at a time.
class RunWatch {
 public:
  static constexpr std::size_t kMembersMax = 200;        // of an answer
  static constexpr std::size_t kLogsMax = 200;           // of an answer
  static constexpr std::size_t kLogBytesMax = 64 << 10;  // of an answer
  static constexpr std::size_t kCurvesMax = 16;          // of an answer

  explicit RunWatch(std::string path);

  // Reads what is new.
  void Refresh();
  // The run has a coordinator that could be asked.
  bool asks() const;
  // What it said. REQUIRES: asks(). Null: nothing yet.
  void Hear(std::shared_ptr<const StatusAsker::Answer> answer);
  // Phase, progress, rates, levels, histograms, roles by their number; names of curves.
  std::string OverviewJson() const;
  // Of metrics.jsonl: {"steps": [...], "wall_s": [...], "updates": [...], "series": {name: [...]},
  // "evaluations": {...}}. Numbers that are missing are null. Errors: kInvalidArgument.
  Result<std::string> CurvesJson(std::span<const std::string> names, std::size_t points) const;
  // {"total", "matching", "members": [...]}. Errors: kInvalidArgument.
  Result<std::string> MembersJson(const MemberQuery& query) const;
  // {"total", "logs": [{name, bytes}]}, of those with `text` in their name.
  std::string LogsJson(std::string_view text) const;
  // The end of a log. Errors: kNotFound: the folder has none of that name.
  Result<std::string> LogJson(std::string_view name, std::size_t bytes) const;
  std::string ConfigJson() const;

 private:
  struct Member {
    std::string name, role, host, error, state;
    std::int64_t index = 0, process = 0, incarnation = 0;
    double silent_s = 0;
    std::optional<double> rate, lag, restarts;
    std::string rate_unit;
  };
  static Member MemberOf(const JsonValue& value);
  std::string RolesJson() const;
  std::vector<std::string> LogNames() const;

  const std::string path_;
  MetricCurve metrics_, evaluations_;
  std::optional<Config> config_;
  std::string state_;
  std::vector<Member> members_;
  std::shared_ptr<const StatusAsker::Answer> answer_;  // null: none
};

}  // namespace troop
