#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/monitor/prometheus_endpoint.h"
#include "fleet/launcher/progress_display.h"
#include "fleet/run/metrics_writer.h"
#include "fleet/run/run_directory.h"

namespace troop {

// Access to the state of a live fleet, which a coordinator or a serial run holds.
struct RunSource {
  std::function<RunView()> view;
  std::function<std::vector<RoleView>()> roles;
  // The phase that the fleet waits for (Supervisor::PhaseText), shown while no bottleneck is
  // measured; may be null.
  std::function<std::string()> phase;
};

// Observes a run: derives its rates, records them in the run folder, and shows them to the user
// (progress and notices) and to Prometheus (fleet.metrics). The dashboard reads the run folder
// itself, so it gets nothing from here. Owner: the thread of the run; no call waits for a reader.
class RunMonitor {
 public:
  struct Options {
    // Steps of the checkpoint that the run resumes from (MetricsWriterOptions::steps).
    std::optional<std::int64_t> steps;
    bool live = false;  // true if progress is a live block, not plain lines
  };
  // Opens the files of the run and the port of fleet.metrics. `folder` outlives the monitor.
  // Errors: those of PrometheusEndpoint::Make and MetricsWriter::Make.
  static Result<std::unique_ptr<RunMonitor>> Make(const RunFolder& folder, const Options& options);

  // Updates rates, files and progress, at most four times a second; less often for a large fleet.
  void Observe(Time now, const RunSource& source);
  // Takes the state after the end of the run, and shows it.
  void Finish(Time now, RunView view);
  // Writes the last records and result.json. REQUIRES: Finish was called.
  Status WriteResult(const Status& outcome);

  // Shows a message to the user.
  void Say(const std::string& notice) { progress_->Say(notice); }
  // Says that the first stop request was received and what a second one does.
  void SayStopping();
  // Reports a role that failed and will be restarted; rate-limited.
  void SayEnded(Time now, const Supervisor::Exit& exit, const std::string& why);

  // The state at the last Observe or Finish.
  const RunView& view() const { return view_; }
  // HOST:PORT of fleet.metrics; empty: not configured.
  std::string metrics_address() const { return metrics_ ? metrics_->address() : ""; }

 private:
  explicit RunMonitor(const RunFolder& folder) : folder_(folder) {}

  const RunFolder& folder_;
  std::unique_ptr<MetricsWriter> recorder_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<PrometheusEndpoint> metrics_;  // null: not configured
  ThroughputMeter meter_;
  RunView view_;
  RunThroughput rates_;
  RoleNotices notices_;
  Time next_{};  // of Observe
};

}  // namespace troop
