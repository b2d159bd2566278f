#pragma once

#include <memory>
#include <optional>

#include "apps/run_rates.h"
#include "apps/run_state.h"
#include "core/config.h"
#include "core/storage.h"
#include "core/time.h"

namespace troop {

// A run of which more updates were skipped than made has not trained its model. Errors: kDataLoss,
// with both counts.
Status CheckSkippedUpdates(const RunView& view);

struct RecorderOptions {
  // Of wall_s, the time that the run has taken; null: the system's, which is monotonic.
  const Clock* clock = nullptr;
  // That a resumed run goes on from. What its files have of later ones is removed: those updates
  // were lost, and are made again. nullopt: nothing is.
  std::optional<std::int64_t> steps;
};

// Writes the course of a run into its folder: metrics.jsonl, evaluations.jsonl, TensorBoard events,
// curve.png (of the evaluations, or of the training returns where there is no evaluator). A run
// that is resumed goes on with the files of its earlier parts. A file that can't be written is said
// once in the log and never ends the run.
class RunRecorder {
 public:
  static Result<std::unique_ptr<RunRecorder>> Make(Storage* run, const Config& config,
                                                   const RecorderOptions& options = {});
  ~RunRecorder();
  // Every metrics_every_s a line; every new evaluation at once.
  void Record(Time now, const RunView& view, const RunRates& rates);
  // The last lines, the curve, result.json.
  Status Finish(const RunView& view, const RunRates& rates, const Status& outcome);

 private:
  struct Files;
  explicit RunRecorder(std::unique_ptr<Files> files);
  void NoteLevels(const RunView& view);
  void WriteMetrics(const RunView& view, const RunRates& rates, bool final);
  void WriteEvaluations(const RunView& view, const RunRates& rates);
  Status DrawCurve(const RunView& view);

  std::unique_ptr<Files> files_;
  Time next_{};
  std::size_t evaluations_ = 0;  // written
};

}  // namespace troop
