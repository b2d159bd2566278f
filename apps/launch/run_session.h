#pragma once

#include <memory>
#include <string>

#include "apps/launch/run_monitor.h"
#include "apps/monitor/dashboard_server.h"
#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/serial_restore_point.h"

namespace troop {

// One part of a run, from the opening of its folder to its result, in process mode and in serial
// mode alike: Open, then Begin or Abandon, then Conclude. The folder stays locked while this object
// lives. Owner: the thread of the run.
class RunSession {
 public:
  struct Options {
    FolderUse use = FolderUse::kFresh;  // kResume: the run continues from its resume point
    bool live = false;                  // RunMonitor::Options::live
  };
  // Opens and locks the folder, finds the start of a resumed run, binds the dashboard. Begins
  // nothing yet, so that a failure can be undone. Errors: those of OpenRunFolder, FindResumePoint
  // and DashboardServer::Make.
  static Result<std::unique_ptr<RunSession>> Open(const Config& config, const Options& options);
  // Claims the folder for the run and opens its monitor and its log. After all other fallible
  // setup, so that a failure leaves no files. Also records the provenance of the run; a failure of
  // that is reported, and the run continues. `env`: the environment or the reviews (TaskSpec).
  // Errors: those of RunMonitor::Make and BeginRun.
  Status Begin(const EnvSpec& env);
  // Undoes Open after a failed start.
  void Abandon() { RemoveUnbegun(folder_); }
  // Ends the run: shows the final state, completes the files, prints the messages. `outcome`: the
  // result of the fleet; a run that skipped too many updates fails even if all processes ended
  // well. Returns the exit code. REQUIRES: Begin succeeded.
  int Conclude(Time now, RunView final_view, Status outcome, bool interrupted);

  const Config& config() const { return folder_.config; }  // of the folder, for a resumed run
  const std::string& path() const { return folder_.path; }
  Storage* storage() const { return folder_.storage.get(); }
  const RestorePoint& start() const { return start_; }
  RunMonitor* monitor() { return monitor_.get(); }  // null before Begin

 private:
  void RecordProvenance(const EnvSpec& env);

  explicit RunSession(const Options& options) : options_(options) {}

  const Options options_;
  RunFolder folder_;
  RestorePoint start_;                          // checkpoint and replay of a resumed run
  std::unique_ptr<RunMonitor> monitor_;         // uses folder_
  std::unique_ptr<DashboardServer> dashboard_;  // null: not configured
};

}  // namespace troop
