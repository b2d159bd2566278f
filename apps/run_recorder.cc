#include "apps/run_recorder.h"

#include <set>

#include "core/event_file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/plot.h"
#include "core/time.h"
#include "core/trajectory.h"

namespace troop {

struct RunRecorder::Files {
  Storage* run = nullptr;
  Config config;
  std::unique_ptr<AppendFile> metrics, evaluations;
  std::unique_ptr<EventWriter> events;
  double started = 0;                // wall clock
  std::set<std::string> complained;  // each trouble is said once

  void Check(std::string_view what, const Status& status) {
    if (status.ok() || !complained.insert(std::string(what)).second) return;
    LogError("{} can't be written, the run goes on without: {}", what, status.message());
  }
};

RunRecorder::RunRecorder(std::unique_ptr<Files> files) : files_(std::move(files)) {}
RunRecorder::~RunRecorder() = default;

Result<std::unique_ptr<RunRecorder>> RunRecorder::Make(Storage* run, const Config& config) {
  auto files = std::make_unique<Files>();
  files->run = run;
  files->config = config;
  files->started = WallSeconds();
  TROOP_ASSIGN_OR_RETURN(files->metrics, run->OpenAppend("metrics.jsonl"));
  TROOP_ASSIGN_OR_RETURN(files->evaluations, run->OpenAppend("evaluations.jsonl"));
  TROOP_ASSIGN_OR_RETURN(files->events, EventWriter::Make(run, ""));
  return std::unique_ptr<RunRecorder>(new RunRecorder(std::move(files)));
}

void RunRecorder::Record(Time now, const RunView& view, const RunRates& rates) {
  WriteEvaluations(view, rates);
  if (now < next_) return;
  next_ = now + Seconds(files_->config.log.metrics_every_s);
  WriteMetrics(view, rates);
}

void RunRecorder::WriteMetrics(const RunView& view, const RunRates& rates) {
  JsonObject line;
  line.Add("wall_s", WallSeconds() - files_->started).Add("phase", PhaseName(view.phase));
  line.Add("steps", view.steps).Add("steps_per_s", rates.steps_per_s);
  line.Add("updates_per_s", rates.updates_per_s).Add("train_return", rates.train_return);
  line.Add("bottleneck", std::string_view(rates.bottleneck));
  std::vector<std::pair<std::string, double>> scalars{{"run/steps_per_s", rates.steps_per_s},
                                                      {"run/updates_per_s", rates.updates_per_s},
                                                      {"run/train_return", rates.train_return}};
  for (const auto& [name, value] : view.metrics) {
    line.Add(name, value.value);
    scalars.emplace_back(name, value.value);
  }
  files_->Check("metrics.jsonl", files_->metrics->Append(line.str() + "\n"));
  files_->Check("TensorBoard events", files_->events->Scalars(WallSeconds(), view.steps, scalars));
}

void RunRecorder::WriteEvaluations(const RunView& view, const RunRates&) {
  if (evaluations_ == view.evaluations.size()) return;
  for (; evaluations_ < view.evaluations.size(); ++evaluations_) {
    const EvaluationReport& e = view.evaluations[evaluations_];
    const std::string line = JsonObject()
                                 .Add("wall_s", WallSeconds() - files_->started)
                                 .Add("steps", e.steps)
                                 .Add("updates", UpdatesOf(e.weights_version))
                                 .Add("episodes", e.episodes)
                                 .Add("return_mean", e.return_mean)
                                 .Add("return_std", e.return_std)
                                 .Add("return_min", e.return_min)
                                 .Add("return_max", e.return_max)
                                 .Add("length_mean", e.length_mean)
                                 .Add("final", e.final)
                                 .str();
    files_->Check("evaluations.jsonl", files_->evaluations->Append(line + "\n"));
    files_->Check("TensorBoard events",
                  files_->events->Scalars(WallSeconds(), e.steps,
                                          {{"evaluation/return_mean", e.return_mean},
                                           {"evaluation/length_mean", e.length_mean}}));
  }
  files_->Check("curve.png", DrawCurve(view));
}

Status RunRecorder::DrawCurve(const RunView& view) {
  LinePlot plot{.title = files_->config.name + ": " + files_->config.env.id,
                .x_label = "agent steps",
                .y_label = "evaluated return"};
  LinePlot::Series mean{.name = "mean"}, low{.name = "min"}, high{.name = "max"};
  for (const EvaluationReport& e : view.evaluations) {
    for (LinePlot::Series* s : {&mean, &low, &high}) s->xs.push_back(double(e.steps));
    mean.ys.push_back(e.return_mean);
    low.ys.push_back(e.return_min);
    high.ys.push_back(e.return_max);
  }
  plot.series = {std::move(mean), std::move(low), std::move(high)};
  return files_->run->WriteAtomic("curve.png", DrawLinePlot(plot).bytes());
}

Status RunRecorder::Finish(const RunView& view, const RunRates& rates, const Status& outcome) {
  WriteEvaluations(view, rates);
  WriteMetrics(view, rates);
  const auto value = [&view](const char* name) {
    const auto it = view.metrics.find(name);
    return it == view.metrics.end() ? 0.0 : it->second.value;
  };
  JsonObject result;
  const std::string_view ended = view.phase == Phase::kDone ? "ok" : "interrupted";
  result.Add("status", outcome.ok() ? ended : std::string_view(outcome.message()))
      .Add("phase", PhaseName(view.phase))
      .Add("steps", view.steps)
      .Add("updates", value("learner/updates"))
      .Add("wall_s", rates.elapsed_s)
      .Add("samples_per_insert", rates.samples_per_insert)
      .Add("checkpoint", std::string_view(view.checkpoint));
  if (!view.evaluations.empty() && view.evaluations.back().final) {
    const EvaluationReport& e = view.evaluations.back();
    result.Add("final_return_mean", e.return_mean)
        .Add("final_return_std", e.return_std)
        .Add("final_return_min", e.return_min)
        .Add("final_episodes", e.episodes)
        .Add("final_updates", UpdatesOf(e.weights_version));
  }
  return files_->run->WriteAtomic("result.json", result.str() + "\n");
}

std::string ViewJson(const RunView& view) {
  std::vector<std::string> members;
  for (const MemberView& m : view.members) {
    members.push_back(JsonObject()
                          .Add("role", std::string_view(PeerName(m.role, m.index)))
                          .Add("incarnation", m.incarnation)
                          .Add("process", m.process)
                          .Add("host", std::string_view(m.host))
                          .Add("silent_s", m.silent_s)
                          .str());
  }
  JsonObject metrics;
  for (const auto& [name, value] : view.metrics) metrics.Add(name, value.value);
  JsonObject out;
  out.Add("phase", PhaseName(view.phase)).Add("steps", view.steps);
  out.Add("steps_total", view.steps_total).Add("checkpoint", std::string_view(view.checkpoint));
  if (!view.evaluations.empty()) out.Add("return_mean", view.evaluations.back().return_mean);
  return out.AddRaw("members", JsonArray(members)).AddRaw("metrics", metrics.str()).str();
}

}  // namespace troop
