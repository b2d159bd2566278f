// Opens, begins and concludes one part of a run.
#include "apps/launch/run_session.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "apps/launch/preflight.h"
#include "apps/launch/provenance.h"
#include "apps/launch/resume_point.h"
#include "apps/launch/run_outcome.h"
#include "core/base/log.h"
#include "fleet/roles/node_runner.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// The folder is marked before anything can fail, so that an aborted start is recognized.
Result<std::unique_ptr<RunSession>> RunSession::Open(const Config& config, const Options& options) {
  std::unique_ptr<RunSession> session(new RunSession(options));
  TROOP_ASSIGN_OR_RETURN(session->folder_, OpenRunFolder(config, options.use));
  if (options.use == FolderUse::kResume) {
    TROOP_ASSIGN_OR_RETURN(session->start_, FindResumePoint(session->folder_));
  } else {
    TROOP_RETURN_IF_ERROR(MarkStarting(session->folder_));
  }
  auto dashboard = DashboardServer::Make(config, session->folder_.path);
  if (!dashboard.ok()) {
    session->Abandon();
    return dashboard.status();
  }
  session->dashboard_ = std::move(*dashboard);
  return session;
}

// The log begins after the folder has its files, since it is one of them.
Status RunSession::Begin(const EnvSpec& env) {
  RunMonitor::Options monitoring{.live = options_.live};
  if (options_.use == FolderUse::kResume) monitoring.steps = start_.steps;
  TROOP_ASSIGN_OR_RETURN(monitor_, RunMonitor::Make(folder_, monitoring));
  TROOP_RETURN_IF_ERROR(BeginRun(folder_));
  InitLog({.role = "launcher",
           .file = folder_.path + "/logs/launcher.log",
           .level = LogLevelOf(folder_.config)});
  RecordProvenance(env);
  if (const CpuLevel level = BestCpuLevel(); level == CpuLevel::kPlain) {
    LogWarning("{}", DescribeKernels(level));
    monitor_->Say(DescribeKernels(level));
  }
  const std::string metrics = monitor_->metrics_address();
  if (!metrics.empty()) LogInfo("metrics at http://{}/metrics", metrics);
  if (dashboard_ != nullptr) monitor_->Say(dashboard_->Greeting());
  return Status::Ok();
}

// Results without a record of their origin are worth more than none, so a failure ends no run.
void RunSession::RecordProvenance(const EnvSpec& env) {
  const bool resumed = options_.use == FolderUse::kResume;
  const JsonObject entry = DescribeProvenance(
      {.config = &folder_.config, .env = &env, .start = resumed ? &start_ : nullptr});
  const Status written = AppendProvenance(storage(), entry);
  if (written.ok()) return;
  const std::string said =
      fmt::format("{}/{} was not written: {}; the run continues without this record", folder_.path,
                  kProvenanceFile, written.message());
  LogWarning("{}", said);
  monitor_->Say("troop: " + said);
}

// Steps: the final view, the step count of the last checkpoint, the result of the run, then
// messages and the exit code.
int RunSession::Conclude(Time now, RunView final_view, Status outcome, bool interrupted) {
  monitor_->Finish(now, std::move(final_view));
  const RunView& view = monitor_->view();
  CorrectFinalCheckpoint(folder_, view);
  if (outcome.ok() && !interrupted) outcome = CheckSkippedUpdates(view);
  const Status written = monitor_->WriteResult(outcome);
  if (!written.ok()) fmt::print(stderr, "troop: {}\n", written.message());
  return ReportOutcome(folder_, view, outcome, interrupted);
}

}  // namespace troop
