// Status of a run from result.json and metrics.jsonl.
#include "fleet/run/ended_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "fleet/run/metric_names.h"
#include "fleet/run/metrics_reader.h"
#include "fleet/run/task_info.h"
#include "fleet/run/throughput.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

// A string of the JSON on one line, with control characters (terminal escapes) replaced.
std::string OneLine(const JsonValue& value, std::string_view key) {
  const Result<std::string> text = value.String(key);
  std::string line = text.ok() ? *text : "";
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return line;
}

std::string ItemLine(std::string_view name, std::string_view value) {
  return fmt::format("  {:<15} {}\n", name, value);
}

// The final score as an evaluation report would show it.
std::string ScoreLine(const JsonValue& result, const Config& config) {
  const EvaluationReport report{.episodes = std::int64_t(NumberOf(result, "final_episodes")),
                                .return_mean = NumberOf(result, "final_return_mean"),
                                .return_std = NumberOf(result, "final_return_std"),
                                .return_min = NumberOf(result, "final_return_min"),
                                .return_max = NumberOf(result, "final_return_max")};
  if (IsSupervised(config)) {
    const ScoreLabels words = GetScoreLabels(config);
    return ItemLine("score", fmt::format("{:.2f} {}{}, of {} {}", report.return_mean, words.score,
                                         SpreadText(true, report), report.episodes, words.units));
  }
  return ItemLine("score", ReturnText(report));
}

}  // namespace

// Reads only the end of the file. A partial last line, which a running writer may leave, is
// skipped; a line that begins before the part that was read is too long.
std::string LastJsonLine(const std::string& path) {
  // Twice the longest line, so that one complete line of any length fits.
  constexpr std::streamoff kTail = std::streamoff(MetricsReader::kLineBytesMax) * 2;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg(), from = std::max<std::streamoff>(0, size - kTail);
  std::string text(std::size_t(std::max<std::streamoff>(0, size - from)), '\0');
  file.seekg(from);
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(std::max<std::streamsize>(0, file.gcount())));
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos) return "";
  text.resize(end);
  const std::size_t begin = text.rfind('\n');
  if (begin == std::string::npos && from > 0) return "";
  std::string line = text.substr(begin == std::string::npos ? 0 : begin + 1);
  return line.size() <= MetricsReader::kLineBytesMax && ParseJson(line).ok() ? line : "";
}

// Values come from result.json of an ended run, else from the last line of metrics.
std::string QuietRunJson(const QuietRun& run) {
  const Result<JsonValue> result = ParseJson(run.result), line = ParseMetricsLine(run.last_line);
  const JsonValue none;
  const JsonValue& told = result.ok() ? *result : line.ok() ? *line : none;
  const Result<std::string> phase = told.String("phase"), checkpoint = told.String("checkpoint");
  JsonObject out;
  out.Add("state", run.state).Add("phase", phase.ok() ? std::string_view(*phase) : "starting");
  out.Add("steps", std::int64_t(NumberOf(told, "steps"))).Add("time_s", run.time_s);
  out.Add("supervised", IsSupervised(*run.config)).Add("offline", IsOffline(*run.config));
  out.Add("steps_total", std::int64_t(run.config->run.total_steps));
  out.Add("updates", std::int64_t(NumberOf(told, "updates")));
  out.Add("checkpoint", checkpoint.ok() ? std::string_view(*checkpoint) : "");
  if (told.Find("final_return_mean") != nullptr) {
    out.Add("return_mean", NumberOf(told, "final_return_mean"));
  } else if (line.ok() && line->Find("evaluator/episode_return_mean") != nullptr) {
    out.Add("return_mean", NumberOf(*line, "evaluator/episode_return_mean"));
  }
  // No coordinator answers for a quiet run, so the lists of its roles are empty.
  return out.Add("members", JsonArray())
      .Add("roles", JsonArray())
      .Add("metrics", line.ok() ? JsonText::Raw(CurrentMetricsLine(run.last_line)) : JsonObject())
      .Add("result", result.ok() ? JsonText::Raw(run.result) : nullptr)
      .str();
}

// A best checkpoint that is replaced while it is read counts as none; the next call finds it.
std::optional<JsonObject> BestScoreJson(Storage* run) {
  const Result<CheckpointScore> best = BestScore(run);
  if (!best.ok()) return std::nullopt;
  return JsonObject()
      .Add("score", best->score)
      .Add("episodes", best->episodes)
      .Add("unix_time", best->unix_time);
}

// Text of `troop status` for an ended run. The reason appears only after a failure.
std::string EndedText(const JsonValue& result, const Config& config) {
  const std::string status = OneLine(result, "status");
  std::string out = status == "ok"            ? "the run has ended: "
                    : status == "interrupted" ? "the run was interrupted: "
                                              : "the run has failed: ";
  out += fmt::format("{:.0f} of {:.0f} {}\n", NumberOf(result, "steps"),
                     double(config.run.total_steps), StepsName(config));
  if (status != "ok" && status != "interrupted") out += ItemLine("reason", status);
  if (result.Find("final_return_mean") != nullptr) out += ScoreLine(result, config);
  out += ItemLine("updates", fmt::format("{:.0f}", NumberOf(result, "updates")));
  out += ItemLine("time", Span(NumberOf(result, "wall_s")));
  if (result.Find("samples_per_insert") != nullptr) {
    out +=
        ItemLine("samples/insert", fmt::format("{:.2f}", NumberOf(result, "samples_per_insert")));
  }
  if (const std::string checkpoint = OneLine(result, "checkpoint"); !checkpoint.empty()) {
    out += ItemLine("checkpoint", checkpoint);
  }
  return out + ItemLine("version", OneLine(result, "version"));
}

}  // namespace troop
