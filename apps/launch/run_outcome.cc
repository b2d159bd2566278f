// The messages at the end of a run, and the exit code.
#include "apps/launch/run_outcome.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "apps/deploy/text_scores_report.h"
#include "apps/planner/training_report.h"
#include "core/graphics/plot/line_plot.h"
#include "core/graphics/plot/matrix_plot.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"
#include "learners/checkpoint.h"
#include "learners/supervised/supervised.h"
#include "learners/supervised/text_metrics.h"
#include "learners/supervised/text_predictor.h"

namespace troop {
namespace {

constexpr char kConfusionPicture[] = "confusion.png";

// The last line states how to continue, also if no checkpoint was written.
int ReportInterrupted(const RunFolder& folder, const RunView& view) {
  fmt::print("stopped after {} {}; {}\n", view.steps, StepsName(folder.config),
             ResumeHint(folder.storage.get(), folder.path));
  std::fflush(stdout);  // another signal may end the process before stdout is flushed
  return kExitInterrupted;
}

// The measures of the final evaluation as Markdown; empty without one, and for one without
// measures. Writes its confusion matrix as a picture next to the report, which shows it.
std::string ReportMeasures(const RunFolder& folder, const RunView& view) {
  if (view.evaluations.empty() || !view.evaluations.back().final) return "";
  const TextScores scores = ReportedScores(view.evaluations.back());
  if (scores.metrics.empty()) return "";
  const std::vector<std::string> names = NamesOfClasses(folder.config.model);
  std::string report = "\n" + TextScoresMarkdown(scores, names);
  // A program without plots has the table alone.
  if (scores.confusion.empty() || !CheckPlots().ok()) return report;
  const Result<Buffer> picture = DrawMatrixPlot(ConfusionPlot(scores, names));
  const Status drawn = picture.ok()
                           ? folder.storage->WriteAtomic(kConfusionPicture, picture->bytes())
                           : picture.status();
  if (!drawn.ok()) {
    fmt::print(stderr, "troop: {}: {}\n", kConfusionPicture, drawn.message());
    return report;
  }
  return report + fmt::format("\n![confusion matrix]({})\n", kConfusionPicture);
}

// Prints the report of learning and its results and writes it to report.md of the run folder.
void ReportLearning(const RunFolder& folder, const RunView& view) {
  // Only text models count their matrix products.
  const bool products =
      !IsLinearModel(folder.config) && !ClassifiesImages(folder.config.model.architecture);
  // A plan compares other meshes with this one; its failure must not hide the report.
  const Peak peak = products ? MeasurePeak(folder.config) : Peak{};
  Result<MeshPlan> plan = InvalidArgument("no plan");
  if (IsWorthAPlan(folder.config, view)) {
    plan = PlanRun(folder.config);
    if (!plan.ok()) fmt::print(stderr, "troop: no mesh plan: {}\n", plan.status().message());
  }
  const std::string report =
      LearningReport(folder.config, view, peak, plan.ok() ? &*plan : nullptr) +
      PipelineReport(folder.config, view) + ReportMeasures(folder, view);
  if (report.empty()) return;
  const Status written = folder.storage->WriteAtomic("report.md", report);
  if (!written.ok()) fmt::print(stderr, "troop: report.md: {}\n", written.message());
  fmt::print("\n{}", report);
}

// The results of a supervised run: the report, and the model if the run wrote one.
void ReportSupervised(const RunFolder& folder, const RunView& view) {
  ReportLearning(folder, view);
  if (folder.storage->Exists(kModelFolder)) {
    fmt::print("model: {}/{}\n", folder.path, kModelFolder);
  } else if (folder.config.model.architecture == ModelArchitecture::kLstm) {
    fmt::print("model: {}/{} (for troop predict; not loadable with Hugging Face transformers)\n",
               folder.path, view.checkpoint);
  }
}

// The best checkpoint of a run with evaluator.keep_best.
void ReportBest(const RunFolder& folder) {
  if (!folder.config.evaluator.keep_best) return;
  const auto best = BestScore(folder.storage.get());
  if (!best.ok()) return fmt::print(stderr, "troop: {}\n", best.status().message());
  fmt::print("best score: {}, {} {}: {}/{}\n", ScoreText(best->score), best->episodes,
             IsSupervised(folder.config) ? "examples" : "episodes", folder.path, kBestFolder);
}

}  // namespace

// The learner wrote its last checkpoint before the last actors had reported their steps.
void CorrectFinalCheckpoint(const RunFolder& folder, const RunView& view) {
  if (!view.checkpoint_final) return;
  const Status corrected =
      CorrectCheckpointSteps(folder.storage.get(), view.checkpoint, view.steps);
  if (corrected.ok()) return;
  fmt::print(stderr, "troop: {}: could not correct its step count: {}\n", view.checkpoint,
             corrected.message());
}

// Missing checkpoints are reported for every outcome, since a later resume would start earlier.
int ReportOutcome(const RunFolder& folder, const RunView& view, const Status& outcome,
                  bool interrupted) {
  const auto failures = view.metrics.find("learner/checkpoint_failures");
  if (failures != view.metrics.end() && failures->second.value > 0) {
    fmt::print(stderr, "troop: {:.0f} checkpoints were not written; see {}/logs/learner-0.log\n",
               failures->second.value, folder.path);
  }
  if (!outcome.ok()) {
    fmt::print(stderr, "troop: the run failed: {}\n  logs: {}/logs\n", outcome.message(),
               folder.path);
    return kExitFailed;
  }
  const auto unkept = view.metrics.find("evaluator/best_checkpoint_failures");
  if (unkept != view.metrics.end() && unkept->second.value > 0) {
    fmt::print(stderr, "troop: the best checkpoint was not written {:.0f} times; see {}/logs\n",
               unkept->second.value, folder.path);
  }
  if (interrupted) return ReportInterrupted(folder, view);
  if (IsSupervised(folder.config)) {
    ReportSupervised(folder, view);
  } else if (!view.evaluations.empty() && view.evaluations.back().final) {
    fmt::print("final score: {}, ε = {}\n", ReturnText(view.evaluations.back()),
               folder.config.evaluator.epsilon);
  }
  ReportBest(folder);
  fmt::print("run folder: {}\n", folder.path);
  return kExitOk;
}

}  // namespace troop
