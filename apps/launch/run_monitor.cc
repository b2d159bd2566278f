// Rates, records, progress and metrics of a live run.
#include "apps/launch/run_monitor.h"

#include <algorithm>
#include <utility>

namespace troop {

// The endpoint comes first: its port may be in use, and the recorder creates files.
Result<std::unique_ptr<RunMonitor>> RunMonitor::Make(const RunFolder& folder,
                                                     const Options& options) {
  std::unique_ptr<RunMonitor> monitor(new RunMonitor(folder));
  TROOP_ASSIGN_OR_RETURN(monitor->metrics_, PrometheusEndpoint::Make(folder.config));
  TROOP_ASSIGN_OR_RETURN(
      monitor->recorder_,
      MetricsWriter::Make(folder.storage.get(), folder.config, {.steps = options.steps}));
  monitor->progress_ = MakeProgress(folder.config.name, options.live);
  return monitor;
}

void RunMonitor::Observe(Time now, const RunSource& source) {
  if (now < next_) return;
  view_ = source.view();
  // Less often for a large fleet, because the view merges the metrics of all members.
  next_ = now + Milliseconds(std::clamp<std::int64_t>(2 * std::ssize(view_.members), 250, 2000));
  rates_ = meter_.Update(now, view_);
  // While no bottleneck is measured, the phase text names what the fleet waits for.
  if (source.phase && rates_.bottleneck.starts_with(kNoneYet)) {
    rates_.bottleneck += source.phase();
  }
  recorder_->Record(now, view_, rates_);
  notices_.SayBlocked(view_, progress_.get());
  notices_.SayEndless(view_, folder_.config, progress_.get());
  progress_->Show(now, view_, rates_);
  if (metrics_) metrics_->Tell(now, view_, rates_, source.roles);
}

void RunMonitor::Finish(Time now, RunView view) {
  view_ = std::move(view);
  rates_ = meter_.Update(now, view_);
  progress_->Finish(view_, rates_);
}

Status RunMonitor::WriteResult(const Status& outcome) {
  return recorder_->Finish(view_, rates_, outcome);
}

void RunMonitor::SayStopping() { Say("stopping after a checkpoint (repeat to kill immediately)"); }

void RunMonitor::SayEnded(Time now, const Supervisor::Exit& exit, const std::string& why) {
  notices_.SayEnded(now, exit, why, progress_.get());
}

}  // namespace troop
