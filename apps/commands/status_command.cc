// `troop status`: a live fleet is queried at its coordinator; a serial or ended run is read from
// its folder.
#include "apps/commands/status_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "apps/monitor/coordinator_client.h"
#include "apps/monitor/run_index.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/ended_run.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"
#include "learners/checkpoint.h"
#include "net/control/status_reply.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = Seconds(5);  // a loaded machine answers late

// Prints an error and returns its exit code.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// A number member, or 0.
double Number(const JsonValue& v, std::string_view key) {
  const JsonValue* n = v.Find(key);
  return n == nullptr ? 0.0 : n->number;
}

// A string member without control characters: remote text must not contain terminal escapes.
std::string Word(const JsonValue& v, std::string_view key) {
  const Result<std::string> text = v.String(key);
  std::string word = text.ok() ? *text : "";
  for (char& c : word) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return word;
}

// Three significant digits below 100, else a whole number.
std::string Count(double n) {
  return n >= 100 ? fmt::format("{:.0f}", n) : fmt::format("{:.3g}", n);
}

// The table cells of one role, in the order of kHeads.
constexpr const char* kHeads[] = {"role", "state",     "host",     "process",   "rate",
                                  "lag",  "last seen", "restarts", "last error"};
std::vector<std::string> RowOf(const JsonValue& r) {
  // A role that never joined has no incarnation; host, process and times are then unknown.
  const bool came = Number(r, "incarnation") > 0;
  const std::string state = Word(r, "state");
  const bool there = state == "alive" || state == "silent" || state == "blocked";
  const JsonValue* const lag = r.Find("lag_updates");
  return {Word(r, "role"),
          state,
          came ? Word(r, "host") : "-",
          came ? fmt::format("{:.0f}", Number(r, "process")) : "-",
          there ? fmt::format("{} {}/s", Count(Number(r, "work_per_s")), Word(r, "unit")) : "-",
          lag == nullptr ? "-" : Count(std::round(lag->number)) + " updates",
          came ? fmt::format("{:.1f} s ago", Number(r, "heartbeat_age_s")) : "never",
          Count(Number(r, "restarts")),
          Word(r, "last_error")};
}

// Prints an aligned table. The last column has no padding.
void PrintRoles(const std::vector<JsonValue>& roles) {
  std::vector<std::vector<std::string>> rows{{std::begin(kHeads), std::end(kHeads)}};
  for (const JsonValue& r : roles) rows.push_back(RowOf(r));
  std::vector<std::size_t> widths(std::size(kHeads), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  widths.back() = 0;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("  {:<{}}", row[i], widths[i]);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

// "1 dead (actor-3), 2 missing (actor-4, actor-5)"; empty if all roles are healthy.
// Groups the unhealthy roles by state; long lists are cut.
std::string Troubles(const std::vector<JsonValue>& roles) {
  std::string out;
  // In the order of severity.
  for (const char* state : {"dead", "missing", "awaited", "silent"}) {
    std::vector<std::string> names;
    for (const JsonValue& r : roles) {
      if (Word(r, "state") == state) names.push_back(Word(r, "role"));
    }
    if (names.empty()) continue;
    constexpr std::size_t kNamed = 8;  // names per state
    const std::size_t named = std::min(names.size(), kNamed);
    out += fmt::format("{}{} {} ({}{})", out.empty() ? "" : ", ", names.size(), state,
                       fmt::join(names.begin(), names.begin() + std::ptrdiff_t(named), ", "),
                       names.size() > named ? ", …" : "");
  }
  return out;
}

// Prints a coordinator's view (ViewJson, fleet/run/role_status.h).
void PrintStatus(const JsonValue& view) {
  // A supervised run counts reviews, an offline run samples, any other run agent steps.
  const JsonValue* const of_reviews = view.Find("supervised");
  const bool supervised = of_reviews != nullptr && of_reviews->boolean;
  const JsonValue* const of_samples = view.Find("offline");
  const bool offline = of_samples != nullptr && of_samples->boolean;
  fmt::print("{}: {:.0f} of {:.0f} {}", view.String("phase").ok() ? Word(view, "phase") : "?",
             Number(view, "steps"), Number(view, "steps_total"),
             supervised ? "examples"
             : offline  ? "samples"
                        : "agent steps");
  if (view.Find("return_mean") != nullptr) {
    fmt::print(", {} {}", supervised ? "score %" : "return",
               ScoreText(Number(view, "return_mean")));
  }
  fmt::print("\n");
  if (const JsonValue* shards = view.Find("parameter_shards"); shards != nullptr) {
    const double count = Number(*shards, "count"), wanted = Number(*shards, "desired");
    fmt::print("  {:.0f} parameter shards, shard map epoch {:.0f}{}\n", count,
               Number(*shards, "epoch"),
               wanted == count ? "" : fmt::format("; resharding to {:.0f}", wanted));
  }
  // First what is wrong, then the table of all roles.
  const JsonValue* const roles = view.Find("roles");
  if (roles == nullptr) return;
  if (const std::string troubles = Troubles(roles->array); !troubles.empty()) {
    fmt::print("  unavailable: {}\n", troubles);
  }
  for (const JsonValue& r : roles->array) {
    if (r.Find("reason") == nullptr) continue;
    fmt::print("  {} is {}: {}\n", Word(r, "role"), Word(r, "state"), Word(r, "reason"));
  }
  PrintRoles(roles->array);
}

// Modification time in seconds since 1970; 0: no such file.
double WrittenAt(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return 0;
  return double(info.st_mtim.tv_sec) + 1e-9 * double(info.st_mtim.tv_nsec);
}

// Prints the JSON object of a status, with the best score of the run folder, which no coordinator
// reports. run: nullptr: the folder is on another machine.
void PrintJson(std::string json, Storage* run) {
  const auto best = run == nullptr ? std::nullopt : BestScoreJson(run);
  if (best && json.ends_with('}')) {
    json.pop_back();
    json += fmt::format(", \"best\": {}}}", best->str());
  }
  fmt::print("{}\n", json);
}

// A serial run has no thread to answer requests, so its last metrics line shows its state.
int ShowSerial(const StatusOptions& options, const std::string& root, Storage* run,
               const RunOwner& holder, const Config& config) {
  if (!holder.alive || holder.stopped)
    return ReportError(ExplainNoResponse(root, holder, options.run));
  const std::string text = LastJsonLine(root + "/metrics.jsonl");
  if (options.json) {
    PrintJson(QuietRunJson({.state = "running",
                            .result = "",
                            .last_line = text,
                            .time_s = WrittenAt(root + "/metrics.jsonl"),
                            .config = &config}),
              run);
    return kExitOk;
  }
  const Result<JsonValue> line = ParseJson(text);
  // Before the first metrics line all numbers are 0 and the phase is "starting".
  const JsonValue none;
  const JsonValue& last = line.ok() ? *line : none;
  fmt::print("{}: {:.0f} of {:.0f} {}\n  all roles in process {} (fleet.mode = serial)\n",
             line.ok() ? Word(last, "phase") : "starting", Number(last, "steps"),
             double(config.run.total_steps), StepsName(config), holder.process);
  return kExitOk;
}

// Queries the coordinator at a tcp:// address, with a tool's key.
Result<Message> AskByAddress(const StatusOptions& options) {
  std::shared_ptr<const KeyRing> keys;
  if (!options.key.empty()) {
    TROOP_ASSIGN_OR_RETURN(keys, KeysFromFile(options.key, Role::kTool));
  }
  Result<Message> answer =
      Ask(options.run, {.type = MessageType::kStatus}, kPatience, std::move(keys));
  const Code code = answer.status().code();
  if (code != Code::kUnavailable && code != Code::kDeadlineExceeded) return answer;
  return Unavailable(
      "no answer from a coordinator at {}: the run has ended, the address is wrong, or the network "
      "blocks it; diagnose with troop doctor --coordinator {}",
      options.run, options.run);
}

// Prints the coordinator's reply. run: as in PrintJson.
int ShowAnswer(const StatusOptions& options, const Result<Message>& answer, Storage* run) {
  if (!answer.ok()) return ReportError(answer.status());
  const Result<StatusReply> reply = DecodeBody<StatusReply>(answer->body);
  if (!reply.ok()) return ReportError(reply.status());
  if (options.json) {
    PrintJson(reply->json, run);
    return kExitOk;
  }
  const Result<JsonValue> view = ParseJson(reply->json);
  if (!view.ok()) return ReportError(view.status());
  PrintStatus(*view);
  return kExitOk;
}

// Prints how an ended run ended, and how to resume it if it can be.
int ShowResult(const StatusOptions& options, const std::string& root, Storage* run,
               std::string_view text) {
  const Result<JsonValue> result = ParseJson(text);
  if (!result.ok()) return ReportError(result.status().WithContext(root + "/result.json"));
  const Result<Config> read = ReadRunConfig(root, {});
  const Config config = read.ok() ? *read : Config();
  if (options.json) {
    PrintJson(QuietRunJson({.state = StateOfRun(root),
                            .result = std::string(text.substr(0, text.rfind('\n'))),
                            .last_line = LastJsonLine(root + "/metrics.jsonl"),
                            .time_s = WrittenAt(root + "/result.json"),
                            .config = &config}),
              run);
    return kExitOk;
  }
  fmt::print("{}", EndedText(*result, config));
  if (Word(*result, "status") != "ok") fmt::print("{}\n", ResumeHint(run, options.run));
  return kExitOk;
}

// Order: an ended run, a serial run, a live fleet.
int ShowRun(const StatusOptions& options, const std::string& root, Storage* run) {
  // A run with a result is not live: BeginRun removes the file.
  if (const auto result = run->Read("result.json", 1 << 20); result.ok()) {
    return ShowResult(options, root, run, result->text());
  }
  const RunOwner holder = FindOwner(root);
  const Result<Config> config = ReadRunConfig(root, {});
  if (config.ok() && config->fleet.mode == FleetMode::kSerial) {
    return ShowSerial(options, root, run, holder, *config);
  }
  return ShowAnswer(
      options, CallCoordinator(root, options.run, {.type = MessageType::kStatus}, kPatience), run);
}

// The best checkpoint, if the folder has one (evaluator.keep_best).
void ShowBest(const StatusOptions& options, const std::string& root, Storage* run) {
  const auto best = BestScore(run);
  if (best.status().code() == Code::kNotFound) return;
  if (!best.ok()) return fmt::print(stderr, "troop: {}\n", best.status().message());
  const Result<Config> config = ReadRunConfig(root, {});
  fmt::print("best score {} over {} {}: {}/{}\n", ScoreText(best->score), best->episodes,
             config.ok() && IsSupervised(*config) ? "examples" : "episodes", options.run,
             kBestFolder);
}

}  // namespace

// An address is queried; any other argument is a run folder.
int ShowStatus(const StatusOptions& options) {
  if (options.run.starts_with("tcp://")) return ShowAnswer(options, AskByAddress(options), nullptr);
  const std::string root = fs::absolute(options.run).lexically_normal().string();
  if (!fs::exists(fs::path(root) / "config.toml")) {
    return ReportError(NotFound("{}: not a run folder (no config.toml)", root));
  }
  const Result<std::unique_ptr<Storage>> storage = MakeDiskStorage(root);
  if (!storage.ok()) return ReportError(storage.status());
  const int code = ShowRun(options, root, storage->get());
  if (code == kExitOk && !options.json) ShowBest(options, root, storage->get());
  return code;
}

void RegisterStatus(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* status = app.add_subcommand("status", "show the state of a run, or how it ended");
  status->add_option("run", options->run, "run folder, or tcp://HOST:PORT of its coordinator")
      ->required();
  status->add_flag("--json", options->json, "print JSON");
  status->add_option("--key", options->key,
                     "key file of the role `tool`, for tcp:// (troop keygen)");
  status->callback([options, chosen] { *chosen = [options] { return ShowStatus(*options); }; });
}

}  // namespace troop
