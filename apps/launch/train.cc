// `troop train`: checks the start, opens the run, and runs its fleet in the mode of the config.
#include "apps/launch/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "apps/launch/preflight.h"
#include "apps/launch/process_fleet.h"
#include "apps/launch/run_session.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/local_launcher.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/serial/serial_run.h"

namespace troop {
namespace {

// Undoes a start that failed. Returns the exit code.
int FailStart(RunSession* session, const Status& why) {
  session->Abandon();
  fmt::print(stderr, "troop: {}\n", why.message());
  return ExitCodeFor(why);
}

// Output is live on a terminal only; a file gets one line per interval.
RunSession::Options SessionOptions(const TrainOptions& options) {
  return {.use = options.resume      ? FolderUse::kResume
                 : options.overwrite ? FolderUse::kOverwrite
                                     : FolderUse::kFresh,
          .live = !options.plain && isatty(STDOUT_FILENO) == 1};
}

// All roles in this process, in turn: the same seed gives the same bytes.
int TrainSerial(RunSession* session) {
  Result<std::unique_ptr<SerialRun>> made =
      SerialRun::Make(session->config(), session->storage(), session->start());
  const Status begun = made.ok() ? session->Begin((*made)->env()) : made.status();
  if (!begun.ok()) return FailStart(session, begun);
  SerialRun& run = **made;
  const RunSource source{
      .view = [&run] { return run.View(); }, .roles = [&run] { return run.roles(); }, .phase = {}};
  SignalWatch signals(nullptr, false);
  const SystemClock clock;
  bool draining = false;
  // The first signal drains the fleet; a second one ends the run without a final checkpoint.
  while (run.Round()) {
    if (signals.count() > 1) break;
    if (signals.count() > 0 && !std::exchange(draining, true)) {
      session->monitor()->SayStopping();
      run.Drain();
    }
    session->monitor()->Observe(clock.Now(), source);
  }
  return session->Conclude(clock.Now(), run.View(), run.result(), signals.count() > 0);
}

// The launcher of the run's engine. With Kubernetes the roles of other pods are external roles.
std::unique_ptr<RoleLauncher> MakeRoleLauncher(const Config& config, const TrainOptions& options) {
  if (options.slurm != nullptr) return std::make_unique<SlurmLauncher>(config, *options.slurm);
  return std::make_unique<LocalLauncher>(config, options.external_learners);
}

// One process per role, supervised by this one.
int TrainProcesses(RunSession* session, const TrainOptions& options) {
  ProcessFleet fleet(session, MakeRoleLauncher(session->config(), options),
                     {.launch = options.launch, .requeue_requested = options.requeue_requested});
  if (const Status started = fleet.Start(); !started.ok()) return FailStart(session, started);
  return fleet.Run();
}

// `--dry-run`: processes, endpoints and memory, without a run folder.
int PrintPlan(const Config& config) {
  const Result<std::string> text = DescribeRun(config);
  if (!text.ok()) {
    fmt::print(stderr, "troop: {}\n", text.status().message());
    return ExitCodeFor(text.status());
  }
  fmt::print("{}", *text);
  return kExitOk;
}

}  // namespace

// The checks come first, so that a start that must fail writes no files.
int Train(const Config& asked, const TrainOptions& options) {
  Config config = asked;
  Status able = CheckStart(&config, options.dry_run);
  if (able.ok() && !options.resume) able = CheckInitFrom(&config);
  if (!able.ok()) {
    const int code = PrintError(able);
    return code == kExitFailed ? kExitUsage : code;
  }
  if (options.dry_run) return PrintPlan(config);
  Result<std::unique_ptr<RunSession>> session = RunSession::Open(config, SessionOptions(options));
  if (!session.ok()) {
    fmt::print(stderr, "troop: {}\n", session.status().message());
    return ExitCodeFor(session.status());
  }
  if (config.fleet.mode == FleetMode::kSerial) return TrainSerial(session->get());
  return TrainProcesses(session->get(), options);
}

}  // namespace troop
