#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/monitor/status_poller.h"
#include "core/base/status.h"
#include "core/storage/json.h"
#include "fleet/config/config.h"
#include "fleet/run/metrics_reader.h"

namespace troop {

// Filter, order and page of a member list.
struct MemberQuery {
  std::string role, text, sort = "role";  // text: substring of name or host; sort: a column
  bool descending = false;
  std::size_t offset = 0, limit = 50;
};

// One run as shown by the dashboard: JSON of bounded size for any run, made from the files of its
// folder and the last status of its coordinator. Owner: one thread at a time.
class RunDetails {
 public:
  static constexpr std::size_t kMembersMax = 200;        // per reply
  static constexpr std::size_t kLogsMax = 200;           // per reply
  static constexpr std::size_t kLogBytesMax = 64 << 10;  // per reply
  static constexpr std::size_t kCurvesMax = 16;          // per reply

  explicit RunDetails(std::string path);

  // Reads new data from the files.
  void Refresh();
  // True if the run has a coordinator that can be queried.
  bool asks() const;
  // Takes the coordinator's latest status; null: none yet. REQUIRES: asks().
  void SetStatus(std::shared_ptr<const StatusPoller::Answer> answer);
  // Phase, progress, rates, metric values, histograms, role counts and the names of the curves.
  std::string OverviewJson() const;
  // Curves from metrics.jsonl: {"steps": [...], "wall_s": [...], "updates": [...], "series":
  // {name: [...]}, "evaluations": {...}}. Missing values are null. Errors: kInvalidArgument.
  Result<std::string> CurvesJson(std::span<const std::string> names, std::size_t points) const;
  // One page of members: {"total", "matching", "members": [...]}. Errors: kInvalidArgument.
  Result<std::string> MembersJson(const MemberQuery& query) const;
  // Logs with `text` in their name: {"total", "logs": [{name, bytes}]}.
  std::string LogsJson(std::string_view text) const;
  // The last `bytes` bytes of a log. Errors: kInvalidArgument; kNotFound: no log of that name.
  Result<std::string> LogJson(std::string_view name, std::size_t bytes) const;
  // The config as TOML text: {"text"}.
  std::string ConfigJson() const;

 private:
  // One role of the coordinator's status.
  struct Member {
    std::string name, role, host, error, state;
    std::int64_t index = 0, process = 0, incarnation = 0;
    double heartbeat_age_s = 0;
    std::optional<double> rate, lag, restarts;
    std::string rate_unit;
  };
  static Member MemberOf(const JsonValue& value);
  JsonArray RolesJson() const;
  std::vector<std::string> LogNames() const;

  const std::string path_;
  MetricsReader metrics_, evaluations_;
  std::optional<Config> config_;
  std::optional<JsonObject> best_;  // BestScoreJson; nullopt: no best checkpoint
  std::string state_;
  std::vector<Member> members_;
  std::shared_ptr<const StatusPoller::Answer> answer_;  // last status; null: none
};

}  // namespace troop
