#pragma once

#include <memory>
#include <optional>

#include "core/base/time.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"
#include "fleet/run/run_state.h"
#include "fleet/run/throughput.h"

namespace troop {

// Fails if more updates were skipped than made, since such a run has not trained its model.
// Errors: kDataLoss, with both counts.
Status CheckSkippedUpdates(const RunView& view);

struct MetricsWriterOptions {
  // Clock for wall_s, the duration of the run; null: the system's monotonic clock.
  const Clock* clock = nullptr;
  // Steps of the checkpoint that the run resumes from. Later records are removed, since those
  // updates were lost and are repeated. nullopt: a fresh run, all records stay.
  std::optional<std::int64_t> steps;
};

// Records a run in its folder: metrics.jsonl, evaluations.jsonl, TensorBoard events and curve.png
// (of the evaluations, or of the training returns without an evaluator). A resumed run appends to
// the files of its earlier parts. A failed write is logged once and never ends the run.
class MetricsWriter {
 public:
  // Opens the files and reads those of earlier parts. `run` outlives the recorder.
  static Result<std::unique_ptr<MetricsWriter>> Make(Storage* run, const Config& config,
                                                     const MetricsWriterOptions& options = {});
  ~MetricsWriter();
  // Writes a line of metrics every metrics_every_s, and each new evaluation at once.
  void Record(Time now, const RunView& view, const RunThroughput& rates);
  // Writes the last lines, the curve and result.json.
  Status Finish(const RunView& view, const RunThroughput& rates, const Status& outcome);

 private:
  struct Files;
  explicit MetricsWriter(std::unique_ptr<Files> files);
  void NoteLevels(const RunView& view);
  void WriteMetrics(const RunView& view, const RunThroughput& rates, bool final);
  void WriteEvaluations(const RunView& view, const RunThroughput& rates);
  void WriteVideos(const RunView& view);
  Status DrawCurve(const RunView& view);

  std::unique_ptr<Files> files_;
  Time next_{};
  std::size_t evaluations_ = 0;  // number of evaluations written
};

}  // namespace troop
