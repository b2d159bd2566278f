// `troop train`: opens the run folder, runs the fleet as processes or in serial mode, reports.
#include "apps/launch/train.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "apps/launch/preflight.h"
#include "apps/monitor/dashboard_server.h"
#include "apps/monitor/prometheus_endpoint.h"
#include "apps/planner/training_report.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/storage/json.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/progress_display.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/launcher/slurm_launcher.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/roles/external_roles.h"
#include "fleet/roles/node_runner.h"
#include "fleet/run/config_change.h"
#include "fleet/run/metrics_writer.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"
#include "fleet/serial/serial_run.h"
#include "learners/checkpoint.h"
#include "learners/supervised/supervised.h"
#include "net/transport/endpoint.h"

namespace troop {
namespace {

// Connections to the coordinator: one per member, and a second one while it registers.
constexpr int kMembersMax = 1 << 15;
constexpr char kStopping[] = "stopping after a checkpoint (repeat to kill immediately)";

// Checks that this machine has room for the fleet that `troop scale` requests. An actor process
// takes some MiB besides what CheckMachine counts; hundreds per core add no speed.
Status CheckRoom(const Config& config) {
  constexpr std::int64_t kActorsOfACore = 1000;
  constexpr double kProcessMiB = 12;
  TROOP_RETURN_IF_ERROR(CheckMachine(config));
  const std::int64_t actors = config.fleet.actors, most = kActorsOfACore * CoresHere();
  const double mib = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
  if (actors <= most && double(actors) * kProcessMiB <= 0.75 * mib) {
    return RaiseOpenFiles(config);
  }
  return InvalidArgument(
      "{} actors exceed the limit of this machine, {} ({} per core, {:g} MiB each in three "
      "quarters of its memory); start more actors on other machines with troop join",
      actors, std::min(most, std::int64_t(0.75 * mib / kProcessMiB)), kActorsOfACore, kProcessMiB);
}

// State that process mode and serial mode share: run folder, files, progress display.
struct Session {
  RunFolder folder;
  std::unique_ptr<MetricsWriter> recorder;
  std::unique_ptr<Progress> progress;
  ThroughputMeter meter;
  RunThroughput rates;
  RunView view;
  RoleNotices notices;
  Time next_look{};
  std::function<std::string()> phase;           // Supervisor::PhaseText; null in serial mode
  RestorePoint from;                            // checkpoint and replay of a resumed run
  std::unique_ptr<PrometheusEndpoint> metrics;  // null: not configured
  std::unique_ptr<DashboardServer> dashboard;   // null: not configured

  // Updates rates, files and progress, at most four times a second.
  template <class Source>  // has a View()
  void Look(Time now, const Source& source) {
    if (now < next_look) return;
    view = source.View();
    // Less often for a large fleet, because the view merges the metrics of all members.
    next_look =
        now + Milliseconds(std::clamp<std::int64_t>(2 * std::ssize(view.members), 250, 2000));
    rates = meter.Update(now, view);
    // While no bottleneck is measured, the phase text names what the fleet waits for.
    if (phase && rates.bottleneck.starts_with(kNoneYet)) rates.bottleneck += phase();
    recorder->Record(now, view, rates);
    notices.SayBlocked(view, progress.get());
    notices.SayEndless(view, folder.config, progress.get());
    progress->Show(now, view, rates);
    if (metrics) metrics->Tell(now, view, rates, [&source] { return source.roles(); });
  }
};

// Rewinds a serial run to its last restore point, so that it repeats exactly what an
// uninterrupted run would do; later updates are lost. Errors: kNotFound without a restore point.
Result<RestorePoint> FindRestorePoint(Session* session) {
  Storage* const run = session->folder.storage.get();
  if (!HasRestorePoints(session->folder.config)) return NotFound("the run has no restore points");
  TROOP_ASSIGN_OR_RETURN(const RestorePoint point, NewestRestorePoint(run));
  TROOP_RETURN_IF_ERROR(GoBackTo(run, point));
  const bool same =
      point.checkpoint.empty() || SameConfig(run, session->folder.path, point.checkpoint);
  fmt::print("resuming {}{}, from {}: {} {}, {} updates\n", session->folder.path,
             same ? " exactly" : "", point.checkpoint.empty() ? "its beginning" : point.checkpoint,
             point.steps, StepsName(session->folder.config), point.updates);
  return point;
}

// The newest checkpoint as a start, for a run without a restore point. Errors: kNotFound, with
// a hint for the user.
Result<RestorePoint> NewestAsPoint(Session* session) {
  Storage* const run = session->folder.storage.get();
  Result<std::string> newest = NewestCheckpoint(run);
  if (newest.status().code() == Code::kNotFound) {
    return NotFound("{}: {}", session->folder.path, ResumeHint(run, session->folder.path));
  }
  TROOP_ASSIGN_OR_RETURN(const std::string path, std::move(newest));
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(run, path));
  SameConfig(run, session->folder.path, path);
  fmt::print("resuming {} from {}: {} {}, {} updates\n", session->folder.path, path, state.steps,
             StepsName(session->folder.config), state.updates);
  return RestorePoint{.checkpoint = path, .steps = state.steps, .updates = state.updates};
}

// Selects the start of a resumed run: its restore point if it has an intact one, else its newest
// checkpoint. A damaged restore point is reported, since the resume is then not exact.
Status FindCheckpoint(Session* session) {
  Storage* const run = session->folder.storage.get();
  Result<RestorePoint> point = FindRestorePoint(session);
  if (point.status().code() == Code::kDataLoss) {
    fmt::print(stderr, "troop: not resumed exactly: {}\n", point.status().message());
  }
  const bool none = !point.ok() && (point.status().code() == Code::kNotFound ||
                                    point.status().code() == Code::kDataLoss);
  if (none) point = NewestAsPoint(session);
  TROOP_ASSIGN_OR_RETURN(session->from, std::move(point));
  if (session->folder.config.learner.sync == "paramserver") WarnOfDamagedShards(run);
  const std::string& path = session->from.checkpoint;
  if (path.empty()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(run, path));
  return CheckResume(session->folder.config, state, session->folder.path + "/" + path);
}

// Opens and locks the folder, finds the start, binds the dashboard. Begins nothing yet, so
// that a failure can be undone.
Result<std::unique_ptr<Session>> OpenSession(const Config& config, const TrainOptions& options) {
  auto session = std::make_unique<Session>();
  const FolderUse use = options.resume      ? FolderUse::kResume
                        : options.overwrite ? FolderUse::kOverwrite
                                            : FolderUse::kFresh;
  TROOP_ASSIGN_OR_RETURN(session->folder, OpenRunFolder(config, use));
  if (options.resume) TROOP_RETURN_IF_ERROR(FindCheckpoint(session.get()));
  auto dashboard = DashboardServer::Make(config, session->folder.path);
  if (!dashboard.ok()) {
    RemoveUnbegun(session->folder);
    return dashboard.status();
  }
  session->dashboard = std::move(*dashboard);
  return session;
}

// Claims the folder for the run. Fallible setup precedes it, so that a failure leaves no files.
Status BeginSession(Session* session, const TrainOptions& options) {
  const Config& config = session->folder.config;
  TROOP_ASSIGN_OR_RETURN(session->metrics, PrometheusEndpoint::Make(config));
  MetricsWriterOptions recording;
  if (options.resume) recording.steps = session->from.steps;
  TROOP_ASSIGN_OR_RETURN(session->recorder,
                         MetricsWriter::Make(session->folder.storage.get(), config, recording));
  TROOP_RETURN_IF_ERROR(BeginRun(session->folder));
  session->progress = MakeProgress(config.name, !options.plain && isatty(STDOUT_FILENO) == 1);
  InitLog({.role = "launcher",
           .file = session->folder.path + "/logs/launcher.log",
           .level = LogLevelOf(config)});
  if (session->metrics) LogInfo("metrics at http://{}/metrics", session->metrics->address());
  if (session->dashboard != nullptr) session->progress->Say(session->dashboard->Greeting());
  return Status::Ok();
}

// The learner's step count in the final checkpoint is up to one heartbeat old; replaces it.
void CorrectFinalCheckpoint(const Session& session) {
  const RunView& view = session.view;
  if (!view.checkpoint_final) return;
  const Status corrected =
      CorrectCheckpointSteps(session.folder.storage.get(), view.checkpoint, view.steps);
  if (corrected.ok()) return;
  fmt::print(stderr, "troop: {}: could not correct its step count: {}\n", view.checkpoint,
             corrected.message());
}

int PrintInterrupted(const Session& session) {
  const char* const name = StepsName(session.folder.config);
  const std::string& path = session.folder.path;
  fmt::print("stopped after {} {}; {}\n", session.view.steps, name,
             ResumeHint(session.folder.storage.get(), path));
  std::fflush(stdout);  // another signal may end the process before stdout is flushed
  return kExitInterrupted;
}

// Prints the learning report and writes it to report.md of the run folder.
void ReportLearning(const RunFolder& folder, const RunView& view) {
  const Peak peak = MeasurePeak(folder.config);
  Result<MeshPlan> plan = InvalidArgument("no plan");
  if (IsWorthAPlan(folder.config, view)) {
    plan = PlanRun(folder.config);
    if (!plan.ok()) fmt::print(stderr, "troop: no mesh plan: {}\n", plan.status().message());
  }
  const std::string report =
      LearningReport(folder.config, view, peak, plan.ok() ? &*plan : nullptr);
  const Status written = folder.storage->WriteAtomic("report.md", report);
  if (!written.ok()) fmt::print(stderr, "troop: report.md: {}\n", written.message());
  fmt::print("\n{}", report);
}

// Ends both modes. Steps: the final view, the step count of the last checkpoint, the result of the
// run, then messages and the exit code. A run that skipped too many updates fails even if all
// processes ended well.
int Conclude(Session* session, RunView view_at_end, Time now, Status outcome, bool interrupted) {
  session->view = std::move(view_at_end);
  session->rates = session->meter.Update(now, session->view);
  session->progress->Finish(session->view, session->rates);
  CorrectFinalCheckpoint(*session);
  if (outcome.ok() && !interrupted) outcome = CheckSkippedUpdates(session->view);
  const Status written = session->recorder->Finish(session->view, session->rates, outcome);
  if (!written.ok()) fmt::print(stderr, "troop: {}\n", written.message());
  const auto failures = session->view.metrics.find("learner/checkpoint_failures");
  if (failures != session->view.metrics.end() && failures->second.value > 0) {
    fmt::print(stderr, "troop: {:.0f} checkpoints were not written; see {}/logs/learner-0.log\n",
               failures->second.value, session->folder.path);
  }
  if (!outcome.ok()) {
    fmt::print(stderr, "troop: the run failed: {}\n  logs: {}/logs\n", outcome.message(),
               session->folder.path);
    return kExitFailed;
  }
  const std::string& path = session->folder.path;
  const RunView& view = session->view;
  if (interrupted) return PrintInterrupted(*session);
  if (IsSupervised(session->folder.config)) {
    ReportLearning(session->folder, view);
    if (session->folder.storage->Exists(kModelFolder)) {
      fmt::print("model: {}/{}\n", path, kModelFolder);
    } else if (session->folder.config.model.architecture == "lstm") {
      fmt::print("model: {}/{} (for troop predict; not loadable with Hugging Face transformers)\n",
                 path, view.checkpoint);
    }
    fmt::print("run folder: {}\n", path);
    return kExitOk;
  }
  if (!view.evaluations.empty() && view.evaluations.back().final) {
    fmt::print("final score: {}, ε = {}\n", ReturnText(view.evaluations.back()),
               session->folder.config.evaluator.epsilon);
  }
  fmt::print("run folder: {}\n", path);
  return kExitOk;
}

int TrainSerial(Session* session, const TrainOptions& options) {
  Result<std::unique_ptr<SerialRun>> made =
      SerialRun::Make(session->folder.config, session->folder.storage.get(), session->from);
  const Status begun = made.ok() ? BeginSession(session, options) : made.status();
  if (!begun.ok()) {
    RemoveUnbegun(session->folder);
    fmt::print(stderr, "troop: {}\n", begun.message());
    return ExitCodeFor(begun);
  }
  SerialRun& run = **made;
  SignalWatch signals(nullptr, false);
  const SystemClock clock;
  bool told = false;
  // The first signal drains the fleet; a second one ends the run without a final checkpoint.
  while (run.Round()) {
    if (signals.count() > 1) break;
    if (signals.count() > 0 && !std::exchange(told, true)) {
      session->progress->Say(kStopping);
      run.Drain();
    }
    session->Look(clock.Now(), run);
  }
  return Conclude(session, run.View(), clock.Now(), run.result(), signals.count() > 0);
}

// Runs the fleet as processes: the coordinator in this one, the roles under a supervisor.
class ProcessFleet {
 public:
  ProcessFleet(Session* session, const TrainOptions& options)
      : session_(session),
        learners_elsewhere_(options.external_learners),
        wants_more_(options.requeue_requested) {}
  Status Start(const TrainOptions& options);
  int Run();

 private:
  void Turn(Time now);
  void NoteExit(const Supervisor::Exit& exit, bool needed);
  void WatchMembers(Time now);
  void WatchSlots(Time now);
  void AddSeat(FleetRole role);
  void HandleSignals(Time now);
  bool Needs(FleetRole role) const;
  Supervisor::Options SupervisorOptions() const;
  void Fail(const Status& why, Time now);

  Session* const session_;
  const bool learners_elsewhere_;
  bool* const wants_more_;
  const SystemClock clock_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<SignalWatch> signals_;
  std::unique_ptr<SlurmLauncher> slurm_;  // null: all roles are processes of this machine
  std::unique_ptr<Supervisor> supervisor_;
  std::optional<Time> kill_at_;      // deadline of a drain; then roles are killed
  std::int32_t servers_ = 0;         // parameter servers added to the supervisor
  std::uint64_t slots_ = 1;          // RoleSlots::revision that the supervisor has
  std::optional<Time> empty_since_;  // since then an external role is missing
  std::string awaited_;              // the missing roles, as last reported
  Time next_watch_{};
  Status outcome_;
};

// Steps: keys, network, coordinator and its listener, claim of the folder, run.json, supervisor.
// Network and listener come before the claim, as they fail for reasons outside the run.
Status ProcessFleet::Start(const TrainOptions& options) {
  const Config& config = session_->folder.config;
  for (const FleetRole& role : RolesOf(config)) {  // fails early when a key is missing
    TROOP_RETURN_IF_ERROR(KeysFor(config, role.role).status());
  }
  TROOP_ASSIGN_OR_RETURN(const auto keys, KeysFor(config, Role::kCoordinator));
  const double timeout_s = config.fleet.heartbeat_timeout_s;
  TROOP_ASSIGN_OR_RETURN(network_, MakeZmqNetwork({.dead_after = Seconds(timeout_s),
                                                   .clients_max = kMembersMax,
                                                   .keys = keys,
                                                   .insecure = config.security.insecure}));
  signals_ = std::make_unique<SignalWatch>(network_.get(), false);
  if (wants_more_ != nullptr) signals_->HandleRequeueSignal();
  if (options.slurm != nullptr) slurm_ = std::make_unique<SlurmLauncher>(config, *options.slurm);
  TROOP_ASSIGN_OR_RETURN(endpoints_, Endpoints::Make(config));
  TROOP_ASSIGN_OR_RETURN(
      coordinator_,
      Coordinator::Make(
          {.config = config,
           .run = session_->folder.storage.get(),
           .listen = [this](Role role, std::int32_t index) { return endpoints_->For(role, index); },
           .resume_checkpoint = session_->from.checkpoint,
           .resume_steps = session_->from.steps,
           .may_have = slurm_ ? nullptr : CheckRoom,
           .resume_updates = session_->from.updates}));
  TROOP_ASSIGN_OR_RETURN(
      listener_, network_->Listen(endpoints_->For(Role::kCoordinator, 0), coordinator_.get()));
  TROOP_RETURN_IF_ERROR(BeginSession(session_, options));
  if (keys == nullptr && !CheckMayListen(listener_->endpoint(), false, false).ok()) {
    session_->progress->Say(
        fmt::format("INSECURE: any client that can reach {} can read and control this run "
                    "(security.insecure)",
                    listener_->endpoint()));
    LogWarning("INSECURE: any client that can reach {} can read and control this run",
               listener_->endpoint());
  }
  // Restore points of an earlier serial part would no longer fit the state of this run.
  TROOP_RETURN_IF_ERROR(RemoveRestorePoints(session_->folder.storage.get()));
  TROOP_RETURN_IF_ERROR(session_->folder.storage->WriteAtomic(
      "run.json",
      JsonObject()
              .Add("coordinator", listener_->endpoint())
              .Add("process", std::int64_t(getpid()))
              .Add("metrics",
                   std::string_view(session_->metrics ? session_->metrics->address() : ""))
              .Add("version", kTroopVersion)
              .Add("launch", options.launch)
              .str() +
          "\n"));
  // One OpenMP thread per role process: the roles share cores, where spinning barriers are slow.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  const std::int32_t servers = coordinator_->parameter_servers();
  supervisor_ = std::make_unique<Supervisor>(
      SupervisorOptions(), slurm_ ? slurm_->Slots(servers) : RolesOf(config, servers));
  session_->phase = [this] { return supervisor_->PhaseText(); };
  if (learners_elsewhere_) supervisor_->Add({Role::kLearner, 0});
  return Status::Ok();
}

// The roles run this program's own file, even if it was replaced on disk meanwhile.
Supervisor::Options ProcessFleet::SupervisorOptions() const {
  Supervisor::Options options{.executable = "/proc/self/exe",
                              .coordinator = listener_->endpoint(),
                              .log_folder = session_->folder.path + "/logs",
                              .config = session_->folder.config};
  if (slurm_ == nullptr) return options;
  options.wrap = [this](FleetRole slot, std::string* program, std::vector<std::string>* words) {
    slurm_->Wrap(slot, listener_->endpoint(), program, words);
  };
  options.spare = [](FleetRole slot) { return slot.role == Role::kActor; };
  options.log_name = [this](FleetRole slot) { return slurm_->LogName(slot); };
  return options;
}

// True if the supervisor should keep a process for the role. False for all after a failure or a
// signal, so that a drain starts no processes.
bool ProcessFleet::Needs(FleetRole role) const {
  if (learners_elsewhere_ && role.role == Role::kLearner && role.index > 0) return false;
  if (!outcome_.ok() || signals_->count() > 0) return false;
  // Under Slurm the actor slots are per node, and SlurmLauncher decides which may start.
  if (slurm_ && role.role == Role::kActor) {
    return coordinator_->Needs(role.role) && slurm_->MayStart(role, clock_.Now());
  }
  return coordinator_->Needs(role.role, role.index);
}

// Ends the run with an error: the roles have fleet.shutdown_grace_s to stop.
void ProcessFleet::Fail(const Status& why, Time now) {
  outcome_ = why;
  coordinator_->Drain();
  kill_at_ = now + Seconds(session_->folder.config.fleet.shutdown_grace_s);
}

int ProcessFleet::Run() {
  const Status run =
      RunNode(coordinator_.get(), network_.get(), clock_, [this](Time now) { Turn(now); });
  if (outcome_.ok()) outcome_ = run;
  // All members have the final phase; the processes get a bounded time to exit.
  const Time soon = clock_.Now() + Seconds(session_->folder.config.fleet.shutdown_grace_s);
  const Time end = std::min(soon, kill_at_.value_or(soon));
  // External actors may not have received it: their heartbeats are answered until they leave.
  while ((supervisor_->alive() > 0 || coordinator_->external_members() > 0) && clock_.Now() < end &&
         signals_->count() < 2) {
    network_->Pump(clock_.Now());
    for (const Supervisor::Exit& exit :
         supervisor_->Tick(clock_.Now(), [](FleetRole) { return false; })) {
      NoteExit(exit, false);
    }
    network_->Wait(clock_.Now(), clock_.Now() + Milliseconds(10));
  }
  network_->Pump(clock_.Now());  // handles heartbeats that are still queued
  supervisor_.reset();
  return Conclude(session_, coordinator_->View(), clock_.Now(), outcome_, signals_->count() > 0);
}

void ProcessFleet::Turn(Time now) {
  HandleSignals(now);
  for (; servers_ < coordinator_->parameter_servers(); ++servers_) {
    AddSeat({Role::kParamServer, servers_});
  }
  if (slots_ != coordinator_->slots().revision()) {
    slots_ = coordinator_->slots().revision();
    for (const auto& [role, index] : coordinator_->slots().All()) AddSeat({role, index});
  }
  for (const Supervisor::Exit& exit :
       supervisor_->Tick(now, [this](FleetRole role) { return Needs(role); })) {
    NoteExit(exit, Needs(exit.role));
  }
  if (outcome_.ok() && !supervisor_->status().ok()) Fail(supervisor_->status(), now);
  if (now >= next_watch_) {
    WatchMembers(now);
    if (slurm_ == nullptr) WatchSlots(now);  // SlurmLauncher::Watch covers its own actors
  }
  session_->Look(now, *coordinator_);
}

// An external role has no child process here, except under Slurm, where the supervisor starts
// every role.
void ProcessFleet::AddSeat(FleetRole role) {
  if (slurm_ || !IsExternal(session_->folder.config, role.role)) supervisor_->Add(role);
}

// Reports external roles (fleet.external_roles) that are missing; fails after fleet.join_timeout_s.
void ProcessFleet::WatchSlots(Time now) {
  const std::vector<std::string> empty = coordinator_->EmptySlots();
  if (empty.empty() || !outcome_.ok()) {
    awaited_.clear();
    return empty_since_.reset();
  }
  const std::string who = fmt::format("{}", fmt::join(empty, ", "));
  if (!empty_since_) empty_since_ = now;
  if (who != awaited_) {
    awaited_ = who;
    LogInfo("waiting for {} to join {}", who, listener_->endpoint());
    session_->progress->Say(fmt::format("waiting for {} to join {}", who, listener_->endpoint()));
  }
  const double limit = session_->folder.config.fleet.join_timeout_s;
  if (now - *empty_since_ < Seconds(limit)) return;
  outcome_ = DeadlineExceeded(
      "{} did not join within {:g} s (fleet.join_timeout_s); start with: troop join {} --role ROLE",
      who, limit, listener_->endpoint());
  coordinator_->Drain();
  kill_at_ = now + Seconds(session_->folder.config.fleet.shutdown_grace_s);
}

// Records the exit. A learner that fails during a drain fails the run: its last checkpoint is lost.
void ProcessFleet::NoteExit(const Supervisor::Exit& exit, bool needed) {
  if (!exit.orderly) {
    const std::string why =
        fmt::format("{}; last log line: {}", exit.reason, supervisor_->LogTail(exit.role));
    // Under Slurm an actor's supervisor slot is not its index.
    const bool known = slurm_ == nullptr || exit.role.role != Role::kActor;
    coordinator_->RecordFailure(exit.role.role, exit.role.index, why, known ? exit.failures : 0);
    session_->notices.SayEnded(clock_.Now(), exit, why, session_->progress.get());
  }
  if (slurm_) {
    slurm_->NoteExit(exit, coordinator_.get(), clock_.Now());
  } else {
    coordinator_->OnMemberExit(exit.role.role, exit.role.index, exit.process);
  }
  if (needed || !exit.failed || exit.role.role != Role::kLearner || !outcome_.ok()) return;
  outcome_ = Aborted("{} failed ({}); last log line: {}", PeerName(exit.role.role, exit.role.index),
                     exit.reason, supervisor_->LogTail(exit.role));
}

// The first signal begins a drain with a deadline. A second signal or the deadline kills.
void ProcessFleet::HandleSignals(Time now) {
  if (signals_->count() == 0 && !kill_at_) return;
  if (!kill_at_) {
    session_->progress->Say(kStopping);
    coordinator_->Drain();
    // SIGUSR1 announces the Slurm time limit slurm.signal_s ahead: that time may be used.
    const Config& config = session_->folder.config;
    const bool more = signals_->requeue_requested();
    if (wants_more_ != nullptr) *wants_more_ = more;
    kill_at_ =
        now +
        Seconds(0.8 * (more ? std::max(config.fleet.shutdown_grace_s, 1.0 * config.slurm.signal_s)
                            : config.fleet.shutdown_grace_s));
  }
  if (signals_->count() > 1 || now >= *kill_at_) {
    supervisor_->Signal(SIGKILL);
    // Members that are not child processes can't be killed; stop waiting for them too.
    for (const MemberView& m : coordinator_->members()) {
      coordinator_->OnMemberExit(m.role, m.index, m.process);
    }
  }
}

// Kills a role whose node has sent no heartbeat for fleet.stall_timeout_s, also one that never
// joined; the supervisor then restarts it like any failed role.
void ProcessFleet::WatchMembers(Time now) {
  if (slurm_) {
    next_watch_ = now + Milliseconds(250);
    const Status hope = slurm_->Watch(now, coordinator_.get(), supervisor_.get());
    if (outcome_.ok() && !hope.ok()) Fail(hope, now);
    return;
  }
  const double limit = session_->folder.config.fleet.stall_timeout_s;
  // The process id distinguishes a restarted role from its predecessor, whose entry may remain.
  std::map<std::tuple<Role, std::int32_t, std::int64_t>, double> silent;
  for (const MemberView& m : coordinator_->members()) {
    silent[{m.role, m.index, m.process}] = m.heartbeat_age_s;
  }
  next_watch_ = now + Milliseconds(std::clamp<std::int64_t>(2 * std::ssize(silent), 250, 2000));
  for (const Supervisor::Running& running : supervisor_->running()) {
    const auto member = silent.find({running.role.role, running.role.index, running.process});
    const double heartbeat_age_s =
        member == silent.end() ? ToSeconds(now - running.since) : member->second;
    if (heartbeat_age_s < limit) continue;
    supervisor_->Kill(
        running.role, running.process,
        fmt::format("no progress for {:.1f} s (fleet.stall_timeout_s)", heartbeat_age_s));
  }
}

}  // namespace

int Train(const Config& asked, const TrainOptions& options) {
  Config config = asked;
  if (const Status able = CheckStart(&config, options.dry_run); !able.ok()) {
    const int code = PrintError(able);
    return code == kExitFailed ? kExitUsage : code;
  }
  if (options.dry_run) {
    const Result<std::string> text = DescribeRun(config);
    if (!text.ok()) {
      fmt::print(stderr, "troop: {}\n", text.status().message());
      return ExitCodeFor(text.status());
    }
    fmt::print("{}", *text);
    return kExitOk;
  }
  Result<std::unique_ptr<Session>> session = OpenSession(config, options);
  if (!session.ok()) {
    fmt::print(stderr, "troop: {}\n", session.status().message());
    return ExitCodeFor(session.status());
  }
  if (config.fleet.mode == "serial") return TrainSerial(session->get(), options);
  ProcessFleet fleet(session->get(), options);
  if (const Status started = fleet.Start(options); !started.ok()) {
    RemoveUnbegun((*session)->folder);
    fmt::print(stderr, "troop: {}\n", started.message());
    return ExitCodeFor(started);
  }
  return fleet.Run();
}

}  // namespace troop
