// Finds the runs in a set of folders and summarizes them from their files.
#include "apps/monitor/run_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "apps/monitor/coordinator_client.h"
#include "core/storage/storage.h"
#include "fleet/run/ended_run.h"
#include "fleet/run/metrics_reader.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/task_info.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEntriesMax = 10000;  // entries read per folder
constexpr std::size_t kResultBytesMax = 1 << 20;

// Modification time in nanoseconds since 1970; -1: no such file.
std::int64_t ChangedAt(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return -1;
  return std::int64_t(info.st_mtim.tv_sec) * 1000000000 + info.st_mtim.tv_nsec;
}

// Every run folder has a config.toml.
bool IsRun(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / "config.toml", error);
}

// A JSON file of a run; nullopt if it is missing or invalid.
std::optional<JsonValue> ReadJson(const std::string& root, std::string_view file) {
  const auto storage = MakeDiskStorage(root);
  if (!storage.ok()) return std::nullopt;
  const auto text = (*storage)->Read(file, kResultBytesMax);
  if (!text.ok()) return std::nullopt;
  Result<JsonValue> value = ParseJson(text->text());
  if (!value.ok()) return std::nullopt;
  return std::move(*value);
}

// Progress from the last lines of the metrics and the evaluations.
JsonObject ProgressJson(const std::string& path) {
  JsonObject progress;
  if (const auto line = ParseJson(LastJsonLine(path + "/metrics.jsonl")); line.ok()) {
    for (const char* key : {"steps", "updates", "wall_s"}) {
      if (line->Find(key) != nullptr) progress.Add(key, NumberOf(*line, key));
    }
  }
  const auto line = ParseJson(LastJsonLine(path + "/evaluations.jsonl"));
  if (line.ok() && line->Find("return_mean") != nullptr) {
    progress.Add("return_mean", NumberOf(*line, "return_mean"));
  }
  return progress;
}

}  // namespace

// A live run has no result (BeginRun removes it), so the lock is checked only without a result.
std::string StateOfRun(const std::string& path) {
  const std::optional<JsonValue> result = ReadJson(path, "result.json");
  if (!result) {
    const RunOwner holder = FindOwner(path);
    return !holder.alive ? "killed" : holder.stopped ? "stopped" : "running";
  }
  const auto status = result->String("status");
  if (!status.ok()) return "failed";
  if (*status == "ok") return "ended";
  return *status == "interrupted" ? "interrupted" : "failed";
}

// A run path adds its parent folder too, so that runs started later appear.
Result<RunIndex> RunIndex::Make(const std::vector<std::string>& paths) {
  RunIndex catalog;
  for (const std::string& given : paths) {
    fs::path path = fs::absolute(given).lexically_normal();
    // A trailing slash leaves an empty last part.
    if (!path.has_filename()) path = path.parent_path();
    std::error_code error;
    if (!fs::is_directory(path, error)) return NotFound("{}: no such folder", given);
    const bool run = IsRun(path);
    if (run) catalog.named_.push_back(path.string());
    const std::string folder = run ? path.parent_path().string() : path.string();
    if (std::ranges::find(catalog.folders_, folder) == catalog.folders_.end()) {
      catalog.folders_.push_back(folder);
    }
    if (run) continue;
    // A folder without runs is most likely a mistake on the command line.
    std::size_t runs = 0;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      runs += IsRun(it->path()) ? 1 : 0;
    }
    if (runs == 0) {
      return NotFound("{}: not a run (no config.toml) or a folder of runs", given);
    }
  }
  catalog.Refresh();
  return catalog;
}

// Used by a run's own dashboard before its folder exists.
RunIndex RunIndex::OfRun(const std::string& path) {
  RunIndex catalog;
  catalog.named_ = {path};
  catalog.folders_ = {fs::path(path).parent_path().string()};
  catalog.Refresh();
  return catalog;
}

void RunIndex::Refresh() {
  // Collect the runs in the folders, sort them by time, assign unique names, drop stale cache
  // entries.
  std::vector<std::pair<std::int64_t, std::string>> others;
  for (const std::string& folder : folders_) {
    std::error_code error;
    std::size_t entries = 0;
    for (fs::directory_iterator it(folder, error), end;
         !error && it != end && entries < kEntriesMax; it.increment(error), ++entries) {
      const std::string path = it->path().string();
      if (!IsRun(it->path()) || std::ranges::find(named_, path) != named_.end()) continue;
      const std::int64_t changed =
          std::max(ChangedAt(path + "/metrics.jsonl"), ChangedAt(path + "/config.toml"));
      // Negative time, so that sorting puts the newest run first.
      others.emplace_back(-changed, path);
    }
  }
  std::ranges::sort(others);
  names_.clear();
  paths_.clear();
  // The first kRunsMax runs win: given ones first, then the newest.
  const auto add = [this](const std::string& path) {
    if (names_.size() >= kRunsMax) return;
    const std::string base = fs::path(path).filename().string();
    std::string name = base;
    for (int n = 2; paths_.contains(name); ++n) name = fmt::format("{}~{}", base, n);
    paths_[name] = path;
    names_.push_back(std::move(name));
  };
  for (const std::string& path : named_) add(path);
  for (const auto& [age, path] : others) add(path);
  // Summaries of removed runs would stay in memory otherwise.
  std::erase_if(known_, [this](const auto& known) {
    return std::ranges::none_of(paths_, [&](const auto& p) { return p.second == known.first; });
  });
}

// Path of a run by its unique name; empty for an unknown name. Clients pass names only, never
// paths.
std::string RunIndex::Find(std::string_view name) const {
  const auto found = paths_.find(name);
  return found == paths_.end() ? "" : found->second;
}

// Each of the three files is read again only when its modification time changed.
JsonObject RunIndex::Summary(const std::string& name) {
  const std::string path = Find(name);
  Known& known = known_[path];
  const std::int64_t config_changed = ChangedAt(path + "/config.toml");
  // Config: an unreadable one keeps the previous values.
  if (config_changed != known.config_changed) {
    known.config_changed = config_changed;
    if (const Result<Config> config = ReadRunConfig(path, {}); config.ok()) {
      known.env = TaskName(*config);
      known.algorithm = AlgorithmName(config->learner);
      known.mode = EnumName(config->fleet.mode);
      known.supervised = IsSupervised(*config);
      known.seed = double(config->seed);
      known.steps_total = double(config->run.total_steps);
    }
  }
  const std::int64_t result_changed = ChangedAt(path + "/result.json");
  // Result: numeric members are copied only if present, so that clients can tell 0 from unknown.
  if (result_changed != known.result_changed) {
    known.result_changed = result_changed;
    JsonObject result;
    if (const auto value = ReadJson(path, "result.json"); value) {
      for (const char* key :
           {"steps", "updates", "wall_s", "samples_per_insert", "final_return_mean",
            "final_return_std", "final_return_min", "final_return_max", "final_episodes"}) {
        if (value->Find(key) != nullptr) result.Add(key, NumberOf(*value, key));
      }
      if (const auto status = value->String("status"); status.ok()) {
        result.Add("status", *status);
      }
    }
    known.result = std::move(result);
  }
  const std::int64_t metrics_changed = ChangedAt(path + "/metrics.jsonl");
  // Metrics and evaluations: only their last lines.
  if (metrics_changed != known.metrics_changed) {
    known.metrics_changed = metrics_changed;
    known.progress = ProgressJson(path);
  }
  const std::int64_t changed = std::max(metrics_changed, config_changed);
  return JsonObject()
      .Add("name", name)
      .Add("named", std::ranges::find(named_, path) != named_.end())
      .Add("env", known.env)
      .Add("algorithm", known.algorithm)
      .Add("mode", known.mode)
      .Add("seed", known.seed)
      .Add("steps_total", known.steps_total)
      .Add("state", StateOfRun(path))
      .Add("changed_s", double(changed) / 1e9)
      .Add("supervised", known.supervised)
      .Add("progress", known.progress)
      .Add("result", known.result);
}

}  // namespace troop
