// A run in process mode: the coordinator's loop, the role processes, signals and deadlines.
#include "apps/launch/process_fleet.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/log.h"
#include "core/base/version.h"
#include "core/storage/json.h"
#include "fleet/roles/external_roles.h"
#include "net/transport/endpoint.h"

namespace troop {
namespace {

// Connections to the coordinator: one per member, and a second one while it registers.
constexpr int kMembersMax = 1 << 15;

}  // namespace

ProcessFleet::ProcessFleet(RunSession* session, std::unique_ptr<RoleLauncher> launcher,
                           Options options)
    : session_(session), options_(std::move(options)), launcher_(std::move(launcher)) {}

// Steps: keys, network, coordinator and its listener, claim of the folder, run.json, supervisor.
// Network and listener come before the claim, as they fail for reasons outside the run.
Status ProcessFleet::Start() {
  TROOP_RETURN_IF_ERROR(MakeNetwork());
  TROOP_RETURN_IF_ERROR(MakeCoordinator());
  TROOP_RETURN_IF_ERROR(session_->Begin(coordinator_->env()));
  WarnIfInsecure();
  // Restore points of an earlier serial part would no longer fit the state of this run.
  TROOP_RETURN_IF_ERROR(RemoveRestorePoints(session_->storage()));
  TROOP_RETURN_IF_ERROR(WriteRunFile());
  StartSupervisor();
  return Status::Ok();
}

Status ProcessFleet::MakeNetwork() {
  const Config& config = session_->config();
  for (const FleetRole& role : RolesOf(config)) {  // fails early when a key is missing
    TROOP_RETURN_IF_ERROR(KeysFor(config, role.role).status());
  }
  TROOP_ASSIGN_OR_RETURN(const auto keys, KeysFor(config, Role::kCoordinator));
  authenticated_ = keys != nullptr;
  const double timeout_s = config.fleet.heartbeat_timeout_s;
  TROOP_ASSIGN_OR_RETURN(network_, MakeZmqNetwork({.dead_after = Seconds(timeout_s),
                                                   .clients_max = kMembersMax,
                                                   .keys = keys,
                                                   .insecure = config.security.insecure}));
  signals_ = std::make_unique<SignalWatch>(network_.get(), false);
  if (options_.requeue_requested != nullptr) signals_->HandleRequeueSignal();
  return Status::Ok();
}

Status ProcessFleet::MakeCoordinator() {
  const Config& config = session_->config();
  TROOP_ASSIGN_OR_RETURN(endpoints_, Endpoints::Make(config));
  TROOP_ASSIGN_OR_RETURN(
      coordinator_,
      Coordinator::Make(
          {.config = config,
           .run = session_->storage(),
           .listen = [this](Role role, std::int32_t index) { return endpoints_->For(role, index); },
           .resume_checkpoint = session_->start().checkpoint,
           .resume_steps = session_->start().steps,
           .may_have = [this](const Config& scaled) { return launcher_->CheckRoom(scaled); },
           .resume_updates = session_->start().updates}));
  TROOP_ASSIGN_OR_RETURN(
      listener_, network_->Listen(endpoints_->For(Role::kCoordinator, 0), coordinator_.get()));
  return Status::Ok();
}

void ProcessFleet::WarnIfInsecure() {
  const std::string& endpoint = listener_->endpoint();
  if (authenticated_ || CheckMayListen(endpoint, false, false).ok()) return;
  session_->monitor()->Say(
      fmt::format("INSECURE: any client that can reach {} can read and control this run "
                  "(security.insecure)",
                  endpoint));
  LogWarning("INSECURE: any client that can reach {} can read and control this run", endpoint);
}

Status ProcessFleet::WriteRunFile() {
  return session_->storage()->WriteAtomic(
      "run.json", JsonObject()
                          .Add("coordinator", listener_->endpoint())
                          .Add("process", std::int64_t(getpid()))
                          .Add("metrics", session_->monitor()->metrics_address())
                          .Add("version", kTroopVersion)
                          .Add("launch", options_.launch)
                          .str() +
                      "\n");
}

// The roles run this program's own file, even if it was replaced on disk meanwhile.
void ProcessFleet::StartSupervisor() {
  const Config& config = session_->config();
  // One OpenMP thread per role process: the roles share cores, where spinning barriers are slow.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  Supervisor::Options options{.executable = "/proc/self/exe",
                              .coordinator = listener_->endpoint(),
                              .log_folder = session_->path() + "/logs",
                              .config = config};
  launcher_->Configure(&options);
  supervisor_ = std::make_unique<Supervisor>(std::move(options),
                                             launcher_->Slots(coordinator_->parameter_servers()));
  source_ = {.view = [this] { return coordinator_->View(); },
             .roles = [this] { return coordinator_->roles(); },
             .phase = [this] { return supervisor_->PhaseText(); }};
  if (launcher_->StartsExternalRoles()) return;
  missing_roles_.emplace(listener_->endpoint(), config.fleet.join_timeout_s);
}

// True if the supervisor should keep a process for the role. False for all after a failure or a
// signal, so that a drain starts no processes.
bool ProcessFleet::Needs(FleetRole role) const {
  if (!outcome_.ok() || signals_->count() > 0) return false;
  return launcher_->Needs(role, *coordinator_, clock_.Now());
}

// Ends the run with an error: the roles have fleet.shutdown_grace_s to stop.
void ProcessFleet::Fail(const Status& why, Time now) {
  outcome_ = why;
  coordinator_->Drain();
  kill_at_ = now + Seconds(session_->config().fleet.shutdown_grace_s);
}

int ProcessFleet::Run() {
  const Status run =
      RunNode(coordinator_.get(), network_.get(), clock_, [this](Time now) { Turn(now); });
  if (outcome_.ok()) outcome_ = run;
  AwaitExits();
  supervisor_.reset();
  return session_->Conclude(clock_.Now(), coordinator_->View(), outcome_, signals_->count() > 0);
}

// All members have the final phase; the processes get a bounded time to exit.
void ProcessFleet::AwaitExits() {
  const Time soon = clock_.Now() + Seconds(session_->config().fleet.shutdown_grace_s);
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
}

void ProcessFleet::Turn(Time now) {
  HandleSignals(now);
  AddSlots();
  for (const Supervisor::Exit& exit :
       supervisor_->Tick(now, [this](FleetRole role) { return Needs(role); })) {
    NoteExit(exit, Needs(exit.role));
  }
  if (outcome_.ok() && !supervisor_->status().ok()) Fail(supervisor_->status(), now);
  if (now >= next_watch_) WatchRoles(now);
  session_->monitor()->Observe(now, source_);
}

// Follows changes of the fleet by `troop scale`.
void ProcessFleet::AddSlots() {
  for (; servers_ < coordinator_->parameter_servers(); ++servers_) {
    AddSlot({Role::kParamServer, servers_});
  }
  if (slots_ == coordinator_->slots().revision()) return;
  slots_ = coordinator_->slots().revision();
  for (const auto& [role, index] : coordinator_->slots().All()) AddSlot({role, index});
}

// An external role has no child process here, unless the launcher starts every role.
void ProcessFleet::AddSlot(FleetRole role) {
  if (launcher_->StartsExternalRoles() || !IsExternal(session_->config(), role.role)) {
    supervisor_->Add(role);
  }
}

// Records the exit. A learner that fails during a drain fails the run: its last checkpoint is lost.
void ProcessFleet::NoteExit(const Supervisor::Exit& exit, bool needed) {
  if (!exit.orderly) {
    const std::string why =
        fmt::format("{}; last log line: {}", exit.reason, supervisor_->LogTail(exit.role));
    coordinator_->RecordFailure(exit.role.role, exit.role.index, why,
                                launcher_->HasRoleIndex(exit.role) ? exit.failures : 0);
    session_->monitor()->SayEnded(clock_.Now(), exit, why);
  }
  launcher_->NoteExit(exit, coordinator_.get(), clock_.Now());
  if (needed || !exit.failed || exit.role.role != Role::kLearner || !outcome_.ok()) return;
  outcome_ = Aborted("{} failed ({}); last log line: {}", PeerName(exit.role.role, exit.role.index),
                     exit.reason, supervisor_->LogTail(exit.role));
}

// The first signal begins a drain with a deadline. A second signal or the deadline kills.
void ProcessFleet::HandleSignals(Time now) {
  if (signals_->count() == 0 && !kill_at_) return;
  if (!kill_at_) {
    session_->monitor()->SayStopping();
    coordinator_->Drain();
    // SIGUSR1 announces the Slurm time limit slurm.signal_s ahead: that time may be used.
    const Config& config = session_->config();
    const bool requeue = signals_->requeue_requested();
    if (options_.requeue_requested != nullptr) *options_.requeue_requested = requeue;
    const double grace_s = config.fleet.shutdown_grace_s;
    kill_at_ =
        now + Seconds(0.8 * (requeue ? std::max(grace_s, 1.0 * config.slurm.signal_s) : grace_s));
  }
  if (signals_->count() > 1 || now >= *kill_at_) {
    supervisor_->Signal(SIGKILL);
    // Members that are not child processes can't be killed; stop waiting for them too.
    for (const MemberView& m : coordinator_->members()) {
      coordinator_->OnMemberExit(m.role, m.index, m.process);
    }
  }
}

// Checks that started roles make progress, and that external ones join.
void ProcessFleet::WatchRoles(Time now) {
  const Status watched = launcher_->Watch(now, coordinator_.get(), supervisor_.get(), &next_watch_);
  if (outcome_.ok() && !watched.ok()) Fail(watched, now);
  if (!missing_roles_ || !outcome_.ok()) return;
  const Status joined = missing_roles_->Check(now, coordinator_->EmptySlots(), session_->monitor());
  if (!joined.ok()) Fail(joined, now);
}

}  // namespace troop
