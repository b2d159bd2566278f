// The JSON of one run for the dashboard. Every size is bounded, as logs, metrics and the
// coordinator's status may come from other machines.
#include "apps/monitor/run_view.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "apps/monitor/run_index.h"
#include "core/tensor/trajectory.h"
#include "fleet/run/ended_run.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/task_info.h"
#include "fleet/serial/serial_fleet.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLogFilesMax = 200000;  // files read per folder: the limit of fleet.actors
constexpr std::size_t kTextMax = 300;         // bytes of text from elsewhere

// A numeric member that not every role has.
std::optional<double> Optional(const JsonValue& value, std::string_view key) {
  const double number = NumberOf(value, key, std::nan(""));
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

// A string member, truncated to kTextMax; empty if missing.
std::string Text(const JsonValue& value, std::string_view key) {
  const auto text = value.String(key);
  return text.ok() ? text->substr(0, kTextMax) : "";
}

// A JSON array; non-finite values become null.
JsonArray NumbersJson(const std::vector<double>& values) {
  // Seven digits suffice for a plot and keep the response small.
  return JsonArray::Rounded(values, 7, JsonStyle::kCompact);
}

// Rates per second of the counters that the run has.
JsonObject RatesJson(const MetricsReader& metrics) {
  JsonObject rates;
  for (const auto& [key, counter] : {std::pair("steps", "steps"),
                                     {"updates", "learner/updates"},
                                     {"inserts", "replay/inserts"},
                                     {"samples", "replay/samples"},
                                     {"priorities", "replay/updates"},
                                     {"actions", "inference/actions"},
                                     {"batches", "inference/batches"},
                                     {"publishes", "paramserver/publishes"},
                                     {"snapshots", "paramserver/snapshots_sent"},
                                     {"episodes", "actor/episodes"},
                                     {"tokens", "learner/tokens"}}) {
    if (metrics.last().Find(counter) != nullptr) rates.Add(key, metrics.Rate(counter));
  }
  // Shares of the time in which the rate limiter blocked inserts or samples.
  for (const auto& [key, clock] : {std::pair("insert_blocked", "replay/insert_blocked_s"),
                                   {"sample_blocked", "replay/sample_blocked_s"}}) {
    if (metrics.last().Find(clock) != nullptr) rates.Add(key, std::min(1.0, metrics.Rate(clock)));
  }
  return rates;
}

// Count, quantiles and at most 100 octaves of a histogram.
JsonObject HistogramJson(const JsonValue& value) {
  JsonObject out;
  for (const char* key : {"count", "p50", "p90", "p99", "max"}) {
    out.Add(key, NumberOf(value, key, std::nan("")));
  }
  JsonArray octaves;
  if (const JsonValue* all = value.Find("octaves"); all != nullptr) {
    for (const JsonValue& octave : all->array) {
      // Entries are pairs of an octave's lower limit and its count; others are damaged.
      if (octave.array.size() != 2 || octaves.size() >= 100) continue;
      octaves.Add(NumbersJson({octave.array[0].number, octave.array[1].number}));
    }
  }
  return out.Add("octaves", octaves);
}

}  // namespace

RunDetails::RunDetails(std::string path)
    : path_(std::move(path)),
      metrics_(path_ + "/metrics.jsonl"),
      evaluations_(path_ + "/evaluations.jsonl") {}

// Role names have the form "actor-3".
RunDetails::Member RunDetails::MemberOf(const JsonValue& value) {
  Member member{.name = Text(value, "role"),
                .role = "",
                .host = Text(value, "host"),
                .error = Text(value, "last_error"),
                .state = Text(value, "state"),
                .process = std::int64_t(NumberOf(value, "process")),
                .incarnation = std::int64_t(NumberOf(value, "incarnation")),
                .heartbeat_age_s = NumberOf(value, "heartbeat_age_s"),
                .rate = Optional(value, "work_per_s"),
                .lag = Optional(value, "lag_updates"),
                .restarts = Optional(value, "restarts"),
                .rate_unit = Text(value, "unit")};
  const std::size_t dash = member.name.rfind('-');
  member.role = member.name.substr(0, dash);
  if (dash != std::string::npos) member.index = std::atoll(member.name.c_str() + dash + 1);
  return member;
}

// An ended run has no members, so those of its last status are dropped.
void RunDetails::Refresh() {
  // Both files are optional: the run may have just started, or have no evaluator.
  (void)metrics_.Update().ok();
  (void)evaluations_.Update().ok();
  state_ = StateOfRun(path_);
  const auto folder = MakeDiskStorage(path_);
  best_ = folder.ok() ? BestScoreJson(folder->get()) : std::nullopt;
  // Retried until it can be read: the folder of a new run has none yet.
  if (!config_) {
    if (Result<Config> config = ReadRunConfig(path_, {}); config.ok()) config_ = std::move(*config);
  }
  if (asks()) return;
  members_.clear();
  answer_.reset();
}

// A serial run has no thread to answer requests.
bool RunDetails::asks() const {
  return state_ == "running" && config_ && config_->fleet.mode != FleetMode::kSerial;
}

// An error answer has no roles: the members of the last good one are kept.
void RunDetails::SetStatus(std::shared_ptr<const StatusPoller::Answer> answer) {
  if (answer == nullptr || (answer_ != nullptr && answer_->number == answer->number)) return;
  answer_ = std::move(answer);
  const JsonValue* const members = answer_->view.Find("roles");
  if (members == nullptr) return;  // keep the previous members
  members_.clear();
  for (const JsonValue& value : members->array) members_.push_back(MemberOf(value));
}

// Per role: expected and present members, restarts, errors, longest silence and hosts.
JsonArray RunDetails::RolesJson() const {
  // One row of the table, summed over the members of a role.
  struct Role {
    std::int64_t expected = 0, present = 0, restarts = 0, errors = 0;
    double heartbeat_age_max_s = 0;
    std::set<std::string> hosts;
  };
  std::map<std::string, Role> roles;
  if (config_) {
    Config all = *config_;
    // External roles are expected as well, so the list of them is ignored here.
    all.fleet.external_roles.clear();
    for (const FleetRole& role : RolesOf(all)) ++roles[std::string(RoleName(role.role))].expected;
  }
  for (const Member& m : members_) {
    Role& role = roles[m.role];
    role.present += m.state == "alive" || m.state == "silent" || m.state == "blocked";
    role.restarts += std::int64_t(m.restarts.value_or(0));
    role.errors += m.error.empty() ? 0 : 1;
    role.heartbeat_age_max_s = std::max(role.heartbeat_age_max_s, m.heartbeat_age_s);
    if (!m.host.empty()) role.hosts.insert(m.host);
  }
  JsonArray out;
  for (const auto& [name, role] : roles) {
    out.Add(JsonObject()
                .Add("role", name)
                .Add("expected", role.expected)
                .Add("present", role.present)
                .Add("restarts", role.restarts)
                .Add("errors", role.errors)
                .Add("heartbeat_age_max_s", role.heartbeat_age_max_s)
                .Add("hosts", std::int64_t(role.hosts.size())));
  }
  return out;
}

// In order: config, progress, rates and roles, latest metrics, histograms, evaluations, curve
// names.
std::string RunDetails::OverviewJson() const {
  const JsonValue& last = metrics_.last();
  JsonObject out;
  out.Add("state", state_).Add("path", path_);
  if (config_) {
    out.Add("name", config_->name);
    out.Add("problem", TaskName(*config_));
    out.Add("algorithm", AlgorithmName(config_->learner));
    out.Add("steps_name", StepsName(*config_)).Add("supervised", IsSupervised(*config_));
    out.Add("offline", IsOffline(*config_));
    out.Add("serial", config_->fleet.mode == FleetMode::kSerial);
    out.Add("sync", EnumName(config_->learner.sync));
    out.Add("steps_total", double(config_->run.total_steps));
    out.Add("replay_capacity", double(config_->replay.capacity_items));
  }
  // Phase and steps come from the coordinator, or else from the last metrics line.
  const bool is_live = answer_ != nullptr && answer_->view.Find("phase") != nullptr;
  const JsonValue& newest = is_live ? answer_->view : last;
  out.Add("phase", Text(newest, "phase"));
  out.Add("steps", NumberOf(newest, "steps")).Add("wall_s", NumberOf(last, "wall_s"));
  out.Add("checkpoint", Text(newest, "checkpoint"));
  out.Add("bottleneck", Text(last, "bottleneck"));
  const std::string_view error = answer_ == nullptr ? "" : std::string_view(answer_->error);
  out.Add("status_error", error.substr(0, kTextMax));
  out.Add("rates", RatesJson(metrics_)).Add("roles", RolesJson());
  JsonObject levels, histograms, evaluated;
  std::size_t count = 0;
  for (const auto& [name, value] : last.object) {
    // Names come from the file, so their number is limited like those of the reader.
    if (++count > MetricsReader::kNamesMax) break;
    if (value.kind == JsonValue::Kind::kNumber) levels.Add(name, value.number);
  }
  for (const auto& [name, value] : metrics_.histograms()) {
    histograms.Add(name, HistogramJson(value));
  }
  for (const auto& [name, value] : evaluations_.last().object) {
    if (value.kind == JsonValue::Kind::kNumber) evaluated.Add(name, value.number);
  }
  if (best_) out.Add("best", *best_);
  return out.Add("metrics", levels)
      .Add("histograms", histograms)
      .Add("evaluated", evaluated)
      .Add("curves", JsonArray::Of(metrics_.names()))
      .str();
}

// Unknown names are left out, as a run may not have a metric yet.
Result<std::string> RunDetails::CurvesJson(std::span<const std::string> names,
                                           std::size_t points) const {
  if (names.size() > kCurvesMax) {
    return InvalidArgument("{} curves, must be at most {}", names.size(), kCurvesMax);
  }
  if (points < 2 || points > MetricsReader::kPointsMax) {
    return InvalidArgument("points is {}, must be from 2 to {}", points, MetricsReader::kPointsMax);
  }
  // All series of a file have the same points, so that they can be plotted against each other.
  const auto values = [points](const MetricsReader& curve, std::string_view name) {
    return NumbersJson(curve.Values(name, points));
  };
  JsonObject out, series, evaluations;
  out.Add("steps", values(metrics_, "steps")).Add("wall_s", values(metrics_, "wall_s"));
  // Older versions wrote only the counter.
  const char* const updates = metrics_.Has("updates") ? "updates" : "learner/updates";
  out.Add("updates", values(metrics_, updates));
  for (const std::string& name : names) {
    if (metrics_.Has(name)) series.Add(name, values(metrics_, name));
  }
  for (const char* name :
       {"steps", "wall_s", "updates", "return_mean", "return_min", "return_max", "loss"}) {
    if (evaluations_.Has(name)) evaluations.Add(name, values(evaluations_, name));
  }
  return out.Add("series", series).Add("evaluations", evaluations).str();
}

// Steps: filter, sort, cut out the page.
Result<std::string> RunDetails::MembersJson(const MemberQuery& query) const {
  if (query.limit < 1 || query.limit > kMembersMax) {
    return InvalidArgument("limit is {}, must be from 1 to {}", query.limit, kMembersMax);
  }
  std::vector<const Member*> found;
  for (const Member& m : members_) {
    if (!query.role.empty() && m.role != query.role) continue;
    // A text matches the role's name or its host.
    const bool has = m.name.find(query.text) != std::string::npos ||
                     m.host.find(query.text) != std::string::npos;
    if (query.text.empty() || has) found.push_back(&m);
  }
  // Stable, so that equal keys keep the order of the coordinator. Missing values sort as -1.
  const auto by = [&](auto key) {
    std::ranges::stable_sort(found, [&](const Member* a, const Member* b) {
      return query.descending ? key(*b) < key(*a) : key(*a) < key(*b);
    });
  };
  const auto named = [](const Member& m) { return std::pair(std::string_view(m.role), m.index); };
  if (query.sort == "role") {
    by(named);
  } else if (query.sort == "host") {
    by([&](const Member& m) { return std::pair(std::string_view(m.host), named(m)); });
  } else if (query.sort == "heartbeat_age_s") {
    by([](const Member& m) { return m.heartbeat_age_s; });
  } else if (query.sort == "rate") {
    by([](const Member& m) { return m.rate.value_or(-1); });
  } else if (query.sort == "lag") {
    by([](const Member& m) { return m.lag.value_or(-1); });
  } else if (query.sort == "restarts") {
    by([](const Member& m) { return m.restarts.value_or(-1); });
  } else {
    return InvalidArgument("sort is {}, must be role, host, heartbeat_age_s, rate, lag or restarts",
                           query.sort.substr(0, 20));
  }
  JsonArray page;
  for (std::size_t i = query.offset; i < found.size() && page.size() < query.limit; ++i) {
    const Member& m = *found[i];
    JsonObject out;
    out.Add("name", m.name).Add("host", m.host);
    out.Add("process", m.process)
        .Add("incarnation", m.incarnation)
        .Add("heartbeat_age_s", m.heartbeat_age_s);
    if (m.rate) out.Add("rate", *m.rate).Add("rate_unit", m.rate_unit);
    if (m.lag) out.Add("lag", *m.lag);
    if (!m.state.empty()) out.Add("state", m.state);
    if (m.restarts) out.Add("restarts", *m.restarts);
    if (!m.error.empty()) out.Add("last_error", m.error);
    page.Add(out);
  }
  return JsonObject()
      .Add("total", std::int64_t(members_.size()))
      .Add("matching", std::int64_t(found.size()))
      .Add("members", page)
      .str();
}

// Names of regular files ending in .log, in numeric order: actor-2 before actor-10.
std::vector<std::string> RunDetails::LogNames() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path_ + "/logs", error), end;
       !error && it != end && names.size() < kLogFilesMax; it.increment(error)) {
    // A symbolic link could lead out of the run folder, so only regular files count.
    std::error_code gone;
    const bool file = it->symlink_status(gone).type() == fs::file_type::regular;
    if (file && it->path().extension() == ".log") names.push_back(it->path().filename().string());
  }
  const auto key = [](const std::string& name) {
    const std::size_t dash = name.rfind('-');
    const bool numbered = dash != std::string::npos;
    return std::tuple(name.substr(0, dash), numbered ? std::atoll(name.c_str() + dash + 1) : -1,
                      name);
  };
  std::ranges::sort(names, [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return names;
}

// `total` counts all matching logs; the list ends at kLogsMax.
std::string RunDetails::LogsJson(std::string_view text) const {
  JsonArray logs;
  std::int64_t total = 0;
  for (const std::string& name : LogNames()) {
    if (name.find(text) == std::string::npos) continue;
    if (std::size_t(total++) >= kLogsMax) continue;
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(path_ + "/logs/" + name, error);
    logs.Add(JsonObject().Add("name", name).Add("bytes", std::uint64_t(error ? 0 : bytes)));
  }
  return JsonObject().Add("total", total).Add("logs", logs).str();
}

// Reads only the end of the file; `cut` is true if there is more.
Result<std::string> RunDetails::LogJson(std::string_view name, std::size_t bytes) const {
  if (bytes < 1 || bytes > kLogBytesMax) {
    return InvalidArgument("bytes is {}, must be from 1 to {}", bytes, kLogBytesMax);
  }
  const std::vector<std::string> names = LogNames();
  // The requested name is only compared, never used in a path.
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return NotFound("the run has no such log");
  // O_NOFOLLOW: a link may have replaced the file since it was listed.
  const std::string path = path_ + "/logs/" + *found;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (file >= 0) close(file);
    return NotFound("the run has no such log");
  }
  // Only the end of the file: a log can be larger than memory.
  const auto size = std::size_t(info.st_size);
  const std::size_t from = size > bytes ? size - bytes : 0;
  std::string text(std::min(size, bytes), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), off_t(from));
  close(file);
  text.resize(got > 0 ? std::size_t(got) : 0);
  if (from > 0) text.erase(0, text.find('\n') + 1);  // a partial first line
  return JsonObject()
      .Add("name", *found)
      .Add("bytes", std::uint64_t(size))
      .Add("cut", from > 0)
      .Add("text", text)
      .str();
}

// The resolved config, which holds paths of key files but no secrets.
std::string RunDetails::ConfigJson() const {
  return JsonObject().Add("text", config_ ? ToToml(*config_) : "").str();
}

}  // namespace troop
