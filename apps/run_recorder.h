#pragma once

#include <memory>

#include "apps/coordinator.h"
#include "apps/run_rates.h"
#include "core/storage.h"

namespace troop {

// A run of which more updates were skipped than made has not trained its model. Errors: kDataLoss,
// with both counts.
Status CheckSkippedUpdates(const RunView& view);

// Writes the course of a run into its folder: metrics.jsonl, evaluations.jsonl, TensorBoard events,
// curve.png (of the evaluations, or of the training returns where there is no evaluator). A run
// that is resumed goes on with the files of its earlier parts. A file that can't be written is said
// once in the log and never ends the run.
class RunRecorder {
 public:
  // clock: of wall_s, the time that the run has taken; null: the system's, which is monotonic.
  static Result<std::unique_ptr<RunRecorder>> Make(Storage* run, const Config& config,
                                                   const Clock* clock = nullptr);
  ~RunRecorder();
  // Every metrics_every_s a line; every new evaluation at once.
  void Record(Time now, const RunView& view, const RunRates& rates);
  // The last lines, the curve, result.json.
  Status Finish(const RunView& view, const RunRates& rates, const Status& outcome);

 private:
  struct Files;
  explicit RunRecorder(std::unique_ptr<Files> files);
  void WriteMetrics(const RunView& view, const RunRates& rates);
  void WriteEvaluations(const RunView& view, const RunRates& rates);
  Status DrawCurve(const RunView& view);

  std::unique_ptr<Files> files_;
  Time next_{};
  std::size_t evaluations_ = 0;  // written
};

}  // namespace troop
