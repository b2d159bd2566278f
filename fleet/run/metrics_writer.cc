// Files of a run: metrics, evaluations, learning curve and result.
#include "fleet/run/metrics_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/base/log.h"
#include "core/base/time.h"
#include "core/base/version.h"
#include "core/graphics/plot/line_plot.h"
#include "core/storage/json.h"
#include "core/tensor/trajectory.h"
#include "fleet/run/metric_names.h"
#include "fleet/run/task_info.h"
#include "fleet/run/tensorboard_log.h"

namespace troop {

namespace {

// Name of a text model's score: MainMetric of learners/supervised/text_metrics.h.
std::string ScoreName(const Config& config) {
  return config.model.problem_type == ProblemType::kRegression ? "pearson" : "accuracy";
}

// The measures of an evaluation by their names (f1_macro, auc, …); undefined ones are null.
JsonObject MeasuresOf(const EvaluationReport& report) {
  JsonObject metrics;
  for (const EvaluationMeasure& measure : report.measures) metrics.Add(measure.name, measure.value);
  return metrics;
}

// Their 95 % intervals by the same names, as [low, high].
JsonObject IntervalsOf(const EvaluationReport& report) {
  JsonObject intervals;
  for (const EvaluationMeasure& measure : report.measures) {
    if (std::isnan(measure.low)) continue;
    intervals.Add(measure.name, JsonArray().Add(measure.low).Add(measure.high));
  }
  return intervals;
}

// A longer file of an earlier part is ignored, with a warning.
constexpr std::size_t kPastBytesMax = std::size_t{1} << 30;
constexpr int kTrainingCurveEvery = 60;    // metric lines per drawing
constexpr char kVideoFolder[] = "videos";  // VideoWriter::kFolder
constexpr std::size_t kVideoBytesMax = std::size_t{4}
                                       << 20;  // size of a video in TensorBoard's events

double Number(const JsonValue& line, std::string_view key) {
  const JsonValue* value = line.Find(key);
  return value == nullptr ? 0 : value->number;
}

double MetricOf(const RunView& view, const char* name) {
  const auto it = view.metrics.find(name);
  return it == view.metrics.end() ? 0 : it->second.value;
}

// The text of a JSON-lines file that an earlier part of the run wrote.
struct Past {
  Buffer text;
  // The line that begins at `at`, with its newline; advances `at`. Empty: no complete line is left.
  std::string_view Next(std::size_t* at) const {
    const std::string_view all = text.text();
    const std::size_t end = all.find('\n', *at);
    if (end == std::string_view::npos) return {};
    const std::string_view line = all.substr(*at, end + 1 - *at);
    *at = end + 1;
    return line;
  }
  // The last complete line, without its newline; empty if there is none.
  std::string_view Last() const {
    const std::string_view all = text.text();
    const std::size_t end = all.rfind('\n');
    if (end == std::string_view::npos || end == 0) return {};
    const std::size_t before = all.rfind('\n', end - 1);
    return all.substr(before == std::string_view::npos ? 0 : before + 1, end - before);
  }
};

// Reads a file of an earlier part; a missing or unreadable file counts as empty.
Past ReadPast(Storage* run, std::string_view name) {
  Past past;
  Result<Buffer> text = run->Read(name, kPastBytesMax);
  if (!text.ok()) {
    if (text.status().code() != Code::kNotFound) {
      LogWarning("{} of the earlier part is ignored: {}", name, text.status().message());
    }
    return past;
  }
  past.text = std::move(*text);
  return past;
}

// The lines up to `steps`. A partial last line (the writer was killed) may be later than that: it
// is dropped if `steps` is set, else completed with a newline.
std::string LinesUntil(const Past& past, std::optional<std::int64_t> steps) {
  std::string kept;
  std::size_t at = 0;
  for (std::string_view text = past.Next(&at); !text.empty(); text = past.Next(&at)) {
    const Result<JsonValue> line = ParseJson(text);
    if (!(steps && line.ok() && Number(*line, "steps") > double(*steps))) kept += text;
  }
  if (!steps && at < past.text.size()) kept.append(past.text.text().substr(at)) += '\n';
  return kept;
}

}  // namespace

// A point of curve.png.
struct CurvePoint {
  double steps = 0, mean = 0, low = 0, high = 0;
};

struct MetricsWriter::Files {
  Storage* run = nullptr;
  Config config;
  std::unique_ptr<AppendFile> metrics, evaluations;
  std::unique_ptr<TensorboardLog> tensorboard;
  const SystemClock system_clock{};
  const Clock* clock = &system_clock;
  Time started{};
  double before_s = 0;               // duration of the earlier parts
  std::vector<CurvePoint> past;      // earlier evaluations, or training returns without evaluator
  std::vector<CurvePoint> training;  // training returns of this part
  int lines = 0;                     // metric lines written
  double last_line_s = 0;            // wall_s of the last line
  std::map<std::string, double> levels;  // last gauges of the learners
  std::string last_video;                // newest one in the TensorBoard events
  std::set<std::string> complained;      // files whose failure was logged

  // Logs the first failure of a file; the run continues without it.
  void Check(std::string_view what, const Status& status) {
    if (status.ok() || !complained.insert(std::string(what)).second) return;
    LogError("can't write {}, the run continues without it: {}", what, status.message());
  }
  // Duration of the run, including earlier parts.
  double wall_s() const { return before_s + ToSeconds(clock->Now() - started); }
  // Reads the files of earlier parts up to `steps`, and removes later lines from them.
  Status ReadBack(std::optional<std::int64_t> steps);
};

// Step 1: duration so far, and removal of later lines; step 2: points of the curve.
Status MetricsWriter::Files::ReadBack(std::optional<std::int64_t> steps) {
  Past old_metrics = ReadPast(run, "metrics.jsonl");
  Past old_evaluations = ReadPast(run, "evaluations.jsonl");
  for (const auto& [name, past] :
       {std::pair("metrics.jsonl", &old_metrics), {"evaluations.jsonl", &old_evaluations}}) {
    // wall_s of the last line is the duration so far; both files may have the newer one.
    const Result<JsonValue> line = ParseJson(past->Last());
    if (line.ok()) before_s = std::max(before_s, Number(*line, "wall_s"));
    const std::string kept = LinesUntil(*past, steps);
    if (kept.size() == past->text.size()) continue;
    TROOP_RETURN_IF_ERROR(run->WriteAtomic(name, kept));
    past->text = Buffer::Copy(std::as_bytes(std::span(kept)));
  }
  const bool evaluated = config.evaluator.enabled;
  const Past& source = evaluated ? old_evaluations : old_metrics;
  std::size_t at = 0;
  for (std::string_view text = source.Next(&at); !text.empty(); text = source.Next(&at)) {
    const Result<JsonValue> line = ParseMetricsLine(text);
    if (!line.ok()) continue;  // a partial line that an earlier resume completed
    const char* const key = evaluated ? "return_mean" : "episode_return_mean";
    if (line->Find(key) == nullptr) continue;                          // no episode had ended yet
    if (!evaluated && Number(*line, "actor/episodes") == 0) continue;  // likewise, older format
    const double mean = Number(*line, key);
    past.push_back({.steps = Number(*line, "steps"),
                    .mean = mean,
                    .low = Number(*line, "return_min"),
                    .high = Number(*line, "return_max")});
  }
  return Status::Ok();
}

MetricsWriter::MetricsWriter(std::unique_ptr<Files> files) : files_(std::move(files)) {}
MetricsWriter::~MetricsWriter() = default;

Result<std::unique_ptr<MetricsWriter>> MetricsWriter::Make(Storage* run, const Config& config,
                                                           const MetricsWriterOptions& options) {
  auto files = std::make_unique<Files>();
  if (options.clock != nullptr) files->clock = options.clock;
  files->run = run;
  files->config = config;
  files->started = files->clock->Now();
  // Before the files are opened for appending, because this step may replace them.
  TROOP_RETURN_IF_ERROR(files->ReadBack(options.steps));
  TROOP_ASSIGN_OR_RETURN(files->metrics, run->OpenAppend("metrics.jsonl"));
  TROOP_ASSIGN_OR_RETURN(files->evaluations, run->OpenAppend("evaluations.jsonl"));
  TROOP_ASSIGN_OR_RETURN(files->tensorboard, TensorboardLog::Make(run, options.steps));
  return std::unique_ptr<MetricsWriter>(new MetricsWriter(std::move(files)));
}

// Evaluations are checked in each call, metrics only when due.
void MetricsWriter::Record(Time now, const RunView& view, const RunThroughput& rates) {
  WriteEvaluations(view, rates);
  NoteLevels(view);
  if (now < next_) return;
  next_ = now + Seconds(files_->config.log.metrics_every_s);
  WriteMetrics(view, rates, false);
}

// Keeps the gauges of learners, environments and evaluations of texts, because their roles have
// left when the last line is written.
void MetricsWriter::NoteLevels(const RunView& view) {
  constexpr MetricKind kLevels[] = {MetricKind::kGaugeMean, MetricKind::kGaugeRatio,
                                    MetricKind::kGaugeMax, MetricKind::kGaugeMin};
  for (const auto& [name, value] : view.metrics) {
    const bool level = std::ranges::find(kLevels, value.kind) != std::end(kLevels);
    const bool kept = name.starts_with("learner/") || name.starts_with("env.") ||
                      (view.supervised && name.starts_with("evaluator/"));
    if (level && kept) files_->levels[name] = value.value;
  }
}

// Appends a line to metrics.jsonl and the same values to the TensorBoard events. `final`: adds the
// last gauges of learners that have left.
void MetricsWriter::WriteMetrics(const RunView& view, const RunThroughput& rates, bool final) {
  JsonObject line;
  line.Add("wall_s", files_->wall_s()).Add("phase", PhaseName(view.phase));
  line.Add("steps", view.steps).Add("steps_per_s", rates.steps_per_s);
  line.Add("updates", view.updates);
  line.Add("updates_per_s", rates.updates_per_s);
  TensorboardLog& board = *files_->tensorboard;
  board.AddScalar("run/steps_per_s", rates.steps_per_s);
  board.AddScalar("run/updates_per_s", rates.updates_per_s);
  if (rates.episode_return_mean) {
    line.Add("episode_return_mean", *rates.episode_return_mean);
    board.AddScalar("run/episode_return_mean", *rates.episode_return_mean);
  }
  if (rates.episode_len_mean) {
    line.Add("episode_len_mean", *rates.episode_len_mean);
    board.AddScalar("run/episode_len_mean", *rates.episode_len_mean);
  }
  board.AddScalar("run/updates", double(view.updates));
  line.Add("bottleneck", rates.bottleneck);
  if (rates.weights_lag) {
    line.Add("run/weights_lag", *rates.weights_lag);
    board.AddScalar("run/weights_lag", *rates.weights_lag);
  }
  // Counters go to metrics.jsonl as totals, and to TensorBoard as rates since the last line.
  const double now_s = files_->wall_s();
  // The first line of a resumed part has no predecessor; AddCounter ignores first values.
  const double seconds = now_s - std::exchange(files_->last_line_s, now_s);
  for (const auto& [name, value] : view.metrics) {
    if (value.kind == MetricKind::kHistogram) {
      line.Add(name, board.AddHistogram(name, value.histogram).Json());
      continue;
    }
    line.Add(name, value.value);
    if (value.kind != MetricKind::kCounter) {
      board.AddScalar(name, value.value);
    } else {
      board.AddCounter(name, value.value, seconds);
    }
  }
  // In the last line, gauges of members that have left are filled in.
  for (const auto& [name, value] : files_->levels) {
    if (!final || view.metrics.contains(name)) continue;
    line.Add(name, value);
    board.AddScalar(name, value);
  }
  files_->Check("metrics.jsonl", files_->metrics->Append(line.str() + "\n"));
  files_->Check("TensorBoard events", board.Write(view.steps));
  if (files_->config.evaluator.video_every > 0) WriteVideos(view);
  if (files_->config.evaluator.enabled || !rates.episode_return_mean) return;
  files_->training.push_back({.steps = double(view.steps), .mean = *rates.episode_return_mean});
  if (files_->lines++ % kTrainingCurveEvery == 0) files_->Check("curve.png", DrawCurve(view));
}

// Appends new evaluations to evaluations.jsonl and TensorBoard, and redraws the curve.
void MetricsWriter::WriteEvaluations(const RunView& view, const RunThroughput&) {
  if (evaluations_ == view.evaluations.size()) return;
  for (; evaluations_ < view.evaluations.size(); ++evaluations_) {
    const EvaluationReport& e = view.evaluations[evaluations_];
    JsonObject line;
    line.Add("wall_s", files_->wall_s()).Add("steps", e.steps);
    line.Add("updates", UpdatesOf(e.weights_version)).Add("episodes", e.episodes);
    line.Add("return_mean", e.return_mean).Add("return_std", e.return_std);
    line.Add("return_min", e.return_min).Add("return_max", e.return_max);
    line.Add("length_mean", e.length_mean).Add("final", e.final);
    TensorboardLog& board = *files_->tensorboard;
    if (view.supervised) {  // return_mean is in %
      const std::string score = ScoreName(files_->config);
      line.Add("loss", e.loss).Add(score, e.return_mean / 100);
      board.AddScalar("evaluation/loss", e.loss);
      board.AddScalar("evaluation/" + score, e.return_mean / 100);
      // The score is among the measures, and has been added.
      for (const EvaluationMeasure& measure : e.measures) {
        if (measure.name == score) continue;
        line.Add(measure.name, measure.value);
        board.AddScalar("evaluation/" + measure.name, measure.value);
      }
    } else {
      board.AddScalar("evaluation/return_mean", e.return_mean);
      board.AddScalar("evaluation/length_mean", e.length_mean);
    }
    files_->Check("evaluations.jsonl", files_->evaluations->Append(line.str() + "\n"));
    files_->Check("TensorBoard events", board.Write(e.steps));
  }
  files_->Check("curve.png", DrawCurve(view));
}

// Copies the newest GIF of videos/ to TensorBoard's events, if it is a new one. The evaluator
// writes it some time after its report; the file's name is the number of updates of its weights.
void MetricsWriter::WriteVideos(const RunView& view) {
  const auto names = files_->run->List(kVideoFolder);
  if (!names.ok()) return files_->Check(kVideoFolder, names.status());
  const auto newest = std::find_if(names->rbegin(), names->rend(),
                                   [](const std::string& name) { return name.ends_with(".gif"); });
  if (newest == names->rend() || *newest <= files_->last_video) return;
  files_->last_video = *newest;
  const auto gif = files_->run->Read(fmt::format("{}/{}", kVideoFolder, *newest), kVideoBytesMax);
  // Larger ones stay in the folder: TensorBoard loads whole event files.
  if (gif.status().code() == Code::kResourceExhausted || gif.status().code() == Code::kNotFound) {
    return;
  }
  if (!gif.ok()) return files_->Check(*newest, gif.status());
  std::int64_t steps = view.steps;
  for (const EvaluationReport& e : view.evaluations) {
    if (fmt::format("{:012}.gif", UpdatesOf(e.weights_version)) == *newest) steps = e.steps;
  }
  files_->Check("TensorBoard events",
                files_->tensorboard->WriteGif("evaluation/video", gif->text(), steps));
}

// Draws curve.png from the points of earlier parts and of this one. A build without plots says so
// once.
Status MetricsWriter::DrawCurve(const RunView& view) {
  if (!HasPlots()) {
    if (files_->complained.insert("curve.png").second) {
      LogInfo("no curve.png: {}", CheckPlots().message());
    }
    return Status::Ok();
  }
  const bool evaluated = files_->config.evaluator.enabled;
  LinePlot plot{.title = files_->config.name + ": " + TaskName(files_->config),
                .x_label = StepsName(files_->config),
                .y_label = view.supervised ? ScoreName(files_->config) + " in %"
                           : evaluated     ? "evaluated return"
                                           : "training return"};
  // Evaluations have a band, which is an interval in supervised mode (fleet/run/task_info.h);
  // training returns are a single line.
  std::vector<CurvePoint> points;
  for (const CurvePoint& p : files_->past) {
    // Later points belong to updates that were lost at the resume.
    if (p.steps <= double(view.steps_at_start)) points.push_back(p);
  }
  for (const EvaluationReport& e : view.evaluations) {
    points.push_back({double(e.steps), e.return_mean, e.return_min, e.return_max});
  }
  if (!evaluated) points.insert(points.end(), files_->training.begin(), files_->training.end());
  LinePlot::Series series{.name = view.supervised ? ScoreName(files_->config) : "mean",
                          .band_name = view.supervised ? "95 % interval" : "minimum to maximum"};
  for (const CurvePoint& p : points) {
    series.xs.push_back(p.steps);
    series.ys.push_back(p.mean);
    if (!evaluated) continue;
    series.low.push_back(p.low);
    series.high.push_back(p.high);
  }
  plot.series = {std::move(series)};
  // A viewer never reads a partial picture.
  TROOP_ASSIGN_OR_RETURN(const Buffer picture, DrawLinePlot(plot));
  return files_->run->WriteAtomic("curve.png", picture.bytes());
}

// `learner/updates` counts from the start of the run; updates_at_start excludes earlier parts.
Status CheckSkippedUpdates(const RunView& view) {
  const double skipped = MetricOf(view, "learner/skipped_updates");
  const double made = MetricOf(view, "learner/updates") - double(view.updates_at_start);
  if (!(skipped > made)) return Status::Ok();
  return DataLoss(
      "{:.0f} updates were skipped and {:.0f} made: the loss or gradient was not finite (see the "
      "learner's log); lower optimizer.learning_rate, or set learner.max_grad_norm",
      skipped, made);
}

// result.json is written last: its presence marks an ended run.
Status MetricsWriter::Finish(const RunView& view, const RunThroughput& rates,
                             const Status& outcome) {
  WriteEvaluations(view, rates);
  NoteLevels(view);
  WriteMetrics(view, rates, true);
  // Draws the points since the last drawing, which kTrainingCurveEvery may have skipped.
  if (!files_->training.empty()) files_->Check("curve.png", DrawCurve(view));
  JsonObject result;
  const std::string_view ended = view.phase == Phase::kDone ? "ok" : "interrupted";
  result.Add("status", outcome.ok() ? ended : std::string_view(outcome.message()))
      .Add("phase", !outcome.ok()                ? "failed"
                    : view.phase == Phase::kDone ? "done"
                                                 : "interrupted")
      .Add("steps", view.steps)
      .Add("updates", view.updates)
      .Add("wall_s", files_->before_s + rates.elapsed_s);
  if (rates.samples_per_insert) result.Add("samples_per_insert", *rates.samples_per_insert);
  result.Add("checkpoint", view.checkpoint).Add("version", kTroopVersion);
  if (!view.evaluations.empty() && view.evaluations.back().final) {
    const EvaluationReport& e = view.evaluations.back();
    result.Add("final_return_mean", e.return_mean)
        .Add("final_return_std", e.return_std)
        .Add("final_return_min", e.return_min)
        .Add("final_return_max", e.return_max)
        .Add("final_episodes", e.episodes)
        .Add("final_updates", UpdatesOf(e.weights_version));
    if (view.supervised)
      result.Add("final_metrics", MeasuresOf(e)).Add("final_intervals", IntervalsOf(e));
  }
  return files_->run->WriteAtomic("result.json", result.str() + "\n");
}

}  // namespace troop
