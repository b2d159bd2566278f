#include "tests/simulation/simulated_fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/storage/memory_storage.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/roles/role_node.h"
#include "fleet/serial/serial_fleet.h"
#include "learners/checkpoint.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/surroundings.h"

namespace troop::simulation {
namespace {

constexpr char kCoordinator[] = "inproc://coordinator";
constexpr Duration kTick = Milliseconds(1);   // events within it are simultaneous
constexpr Duration kGrace = Seconds(3600);    // for the end of the run, after the last fault
constexpr Duration kPatience = Seconds(180);  // without progress and without faults

// ---- The fleet ----------------------------------------------------------------------------------

class Fleet {
 public:
  explicit Fleet(const Plan& plan);
  Outcome Live();

 private:
  struct Slot {
    FleetRole role;
    std::optional<Time> start_at;  // unset: no start is due
  };
  struct Active {  // a fault with a duration
    Fault fault;
    Time until{};
  };

  struct Armed {  // a kill that waits for its moment
    Fault fault;
    Time at_last{};
    std::optional<Time> at;
  };

  Status BeginRun();
  void EndRun();
  void StartDue();
  void SeatWanted();
  void SeatOne(const FleetRole& role);
  void Turn();
  void StepProcess(Process* process);
  void StepCoordinator();
  void Watch();
  void Kill(Process* process, bool tear);
  void Bury(std::size_t index);
  void Apply(const Fault& fault);
  void StrikeArmed();
  void EndFault(const Active& active);
  void EndFaults(bool all);
  void PowerLoss();
  void NoteProgress();
  Process* Playing(std::string_view name);
  Process* Playing(const FleetRole& role);
  std::vector<std::string> PlacesOf(std::string_view name) const;
  Time NextTime() const;
  bool Over() const;
  void Mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 1099511628211u; }

  const Plan& plan_;
  Time now_{};
  Rng rng_;
  Weather weather_;
  Checker checker_;
  std::unique_ptr<MemoryStorage> disk_ = std::make_unique<MemoryStorage>();
  SimRendezvousFactory rendezvous_factory_;
  std::unique_ptr<SimHub> hub_;
  std::unique_ptr<SimNetwork> network_;  // the coordinator's
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  Time coordinator_wakes_{};
  bool coordinator_done_ = false;
  std::vector<Slot> slots_;
  std::uint64_t seated_ = 1;  // RoleSlots::revision that slots_ reflects
  std::vector<std::unique_ptr<Process>> processes_;
  std::int64_t next_id_ = 1;
  std::vector<Active> active_;
  std::vector<Armed> armed_;
  std::size_t next_fault_ = 0;
  Time next_watch_{};
  std::int64_t looks_ = 0;
  std::int64_t steps_ = 0;
  std::uint64_t updates_ = 0;
  Time progress_at_{};
  std::uint64_t delivered_before_ = 0;  // by the hubs of earlier lives
  std::uint64_t hash_ = 14695981039346656037u;
  Outcome outcome_;
};

Fleet::Fleet(const Plan& plan)
    : plan_(plan),
      rng_({.run_seed = plan.seed, .index = 3}),
      weather_(plan.seed),
      checker_(int(std::max<std::int64_t>(plan.config.replay.shards, plan.shards_max)),
               plan.config.replay.durability == Durability::kDisk,
               plan.config.learner.sync == LearnerSync::kParamServer) {}

Status Fleet::BeginRun() {
  hub_ = MakeSimHub();
  hub_->SetNetworkModel(&weather_);
  hub_->Advance(now_);
  const NetworkOptions options{.dead_after = Seconds(plan_.config.fleet.heartbeat_timeout_s)};
  NetworkOptions many = options;
  many.clients_max = 1 << 15;  // as in the launcher
  network_ = hub_->MakeNetwork(many, "coordinator");
  std::string resume;
  std::int64_t steps = 0;
  std::uint64_t updates = 0;
  if (const Result<std::string> newest = NewestCheckpoint(disk_.get()); newest.ok()) {
    TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(disk_.get(), *newest));
    resume = *newest;
    steps = state.steps;
    updates = state.updates;
  }
  TROOP_ASSIGN_OR_RETURN(coordinator_, Coordinator::Make({.config = plan_.config,
                                                          .run = disk_.get(),
                                                          .listen =
                                                              [](Role role, std::int32_t index) {
                                                                return "inproc://" +
                                                                       PeerName(role, index);
                                                              },
                                                          .resume_checkpoint = resume,
                                                          .resume_steps = steps,
                                                          .resume_updates = updates}));
  TROOP_ASSIGN_OR_RETURN(listener_, network_->Listen(kCoordinator, coordinator_.get()));
  steps_ = steps;
  updates_ = updates;
  progress_at_ = now_;
  coordinator_wakes_ = next_watch_ = now_;
  slots_.clear();
  seated_ = coordinator_->slots().revision();
  for (const FleetRole& role : RolesOf(plan_.config, coordinator_->parameter_servers()))
    slots_.push_back({role, now_});
  return Status::Ok();
}

void Fleet::EndRun() {
  processes_.clear();
  listener_.reset();
  coordinator_.reset();
  network_.reset();
  delivered_before_ += hub_->delivered();
  hub_.reset();
}

Process* Fleet::Playing(std::string_view name) {
  for (const auto& process : processes_) {
    const bool same = PeerName(process->role.role, process->role.index) == name;
    if (same && !process->replaced) return process.get();
  }
  return nullptr;
}

Process* Fleet::Playing(const FleetRole& role) {
  for (const auto& process : processes_) {
    if (process->role == role && !process->replaced) return process.get();
  }
  return nullptr;
}

std::vector<std::string> Fleet::PlacesOf(std::string_view name) const {
  if (name == "coordinator") return {"coordinator"};
  std::vector<std::string> places;
  for (const auto& process : processes_) {
    if (PeerName(process->role.role, process->role.index) == name) places.push_back(process->place);
  }
  return places;
}

// ---- Processes ----------------------------------------------------------------------------------

// Assigns slots to roles that are new, or whose process left its slot.
void Fleet::SeatWanted() {
  for (std::int32_t k = 0; k < coordinator_->parameter_servers(); ++k) {
    SeatOne({Role::kParamServer, k});
  }
  if (seated_ == coordinator_->slots().revision()) return;
  seated_ = coordinator_->slots().revision();
  for (const auto& [role, index] : coordinator_->slots().All()) SeatOne({role, index});
}

void Fleet::SeatOne(const FleetRole& role) {
  const auto slot = std::ranges::find(slots_, role, &Slot::role);
  if (slot == slots_.end()) {
    slots_.push_back({role, now_});
  } else if (!slot->start_at && Playing(role) == nullptr) {
    slot->start_at = now_;
  }
}

void Fleet::StartDue() {
  for (Slot& slot : slots_) {
    if (!slot.start_at || now_ < *slot.start_at) continue;
    slot.start_at.reset();
    if (!coordinator_->Needs(slot.role.role, slot.role.index)) continue;
    auto process = std::make_unique<Process>();
    process->role = slot.role;
    process->id = next_id_++;
    process->place = fmt::format("{}#{}", PeerName(slot.role.role, slot.role.index), process->id);
    process->began = process->wakes_at = now_;
    process->network =
        hub_->MakeNetwork({.dead_after = Seconds(plan_.config.fleet.heartbeat_timeout_s),
                           .clients_max = 1 << 15},  // as in `troop role`
                          process->place);
    process->executor =
        std::make_unique<SimExecutor>(plan_.seed * 1000003 + std::uint64_t(process->id), &now_);
    if (slot.role.role == Role::kLearner) process->rendezvous = rendezvous_factory_.Make();
    process->node = std::make_unique<RoleNode>(RoleNode::Options{
        .role = slot.role.role,
        .index = slot.role.index,
        .coordinator = kCoordinator,
        .host = "simulated",
        .process = process->id,
        .attempt = std::uint64_t(process->id),
        .heartbeat_every = Seconds(1),
        .network = process->network.get(),
        .executor = process->executor.get(),
        .rendezvous = process->rendezvous.get(),
        .storage = [this](const Config&) -> Result<Storage*> { return disk_.get(); },
        .joined = {},
        .history = checker_.Of(process->place, slot.role.role == Role::kReplay, slot.role.index)});
    processes_.push_back(std::move(process));
  }
}

void Fleet::StepProcess(Process* process) {
  process->executor->Run();
  process->network->Pump(now_);
  const troop::StepStatus turn = process->node->Step(now_);
  process->network->Pump(now_);  // sends what the step queued
  if (process->role.role == Role::kReplay && !process->served && process->node->playing()) {
    process->served = true;
    checker_.ShardIsBack(process->role.index);
  }
  process->rests_until = now_ + StepTakes(process->role.role, &rng_);
  process->wakes_at = turn.what == troop::StepStatus::kBusy ? now_ : turn.until;
  process->Changed();
  Mix(std::uint64_t(now_.time_since_epoch().count()) ^ std::uint64_t(process->id) << 48);
  if (turn.what != troop::StepStatus::kDone) return;
  const Status result = process->node->result();
  // A replaced process must exit with an error. The supervisor restarts a role after any other
  // error.
  if (process->replaced && result.ok() &&
      coordinator_->Needs(process->role.role, process->role.index)) {
    checker_.Breach(fmt::format("{} was replaced and left without an error", process->place));
  }
  process->wakes_at = kForever;
  process->node->Drain();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].get() == process) return Bury(i);
  }
}

// The supervisor notices at once.
void Fleet::Bury(std::size_t index) {
  const std::unique_ptr<Process> process = std::move(processes_[index]);
  processes_.erase(processes_.begin() + std::ptrdiff_t(index));
  coordinator_->OnMemberExit(process->role.role, process->role.index, process->id);
  if (process->replaced) return;
  if (process->role.role == Role::kReplay) checker_.ShardDied(process->role.index);
  for (Slot& slot : slots_) {
    if (!(slot.role == process->role)) continue;
    slot.start_at = now_ + Milliseconds(100 + rng_.Below(1900));
    outcome_.restarts += coordinator_->Needs(process->role.role, process->role.index);
  }
}

// kill -9. `tear`: during a job, whose writes stop at a random point.
void Fleet::Kill(Process* process, bool tear) {
  hub_->Kill(process->place);
  if (tear) {
    disk_->FailFrom(disk_->changes() + rng_.Below(6), Unavailable("the process died"));
    process->executor->RunFirst();
    disk_->Repair();
    for (const Active& active : active_) {
      if (active.fault.kind == Fault::kDisk) {
        disk_->FailFrom(disk_->changes(), ResourceExhausted("no space is left on the device"));
      }
    }
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].get() == process) return Bury(i);
  }
}

// Kills processes without progress for too long, as `troop train` does.
void Fleet::Watch() {
  next_watch_ = now_ + Seconds(1);
  const double limit = plan_.config.fleet.stall_timeout_s;
  std::unordered_map<std::int64_t, double> silent;  // by process
  for (const MemberView& m : coordinator_->members()) silent[m.process] = m.heartbeat_age_s;
  std::vector<Process*> hung;
  for (const auto& process : processes_) {
    if (process->replaced) continue;
    const auto found = silent.find(process->id);
    const double alone_s = ToSeconds(now_ - process->began);
    if ((found == silent.end() ? alone_s : found->second) >= limit) hung.push_back(process.get());
  }
  for (Process* process : hung) Kill(process, false);
}

void Fleet::StepCoordinator() {
  network_->Pump(now_);
  const troop::StepStatus turn = coordinator_->Step(now_);
  network_->Pump(now_);
  coordinator_done_ = turn.what == troop::StepStatus::kDone;
  coordinator_wakes_ = coordinator_done_ ? kForever : turn.until;
}

// ---- Faults -------------------------------------------------------------------------------------

void Fleet::Apply(const Fault& fault) {
  Process* const process = Playing(fault.role);
  const auto pairs = [&](const auto& visit) {
    for (const std::string& a : PlacesOf(fault.role)) {
      for (const std::string& b : PlacesOf(fault.other)) visit(a, b);
    }
  };
  switch (fault.kind) {
    case Fault::kKill:
    case Fault::kTear:
      if (process == nullptr) return;
      // Wait for a critical moment: before the end of a job, if there is one soon.
      armed_.push_back({fault, now_ + Seconds(20), {}});
      break;
    case Fault::kReplace:
    case Fault::kFreeze:
      if (process == nullptr || process->frozen) return;
      process->frozen = true;
      hub_->Freeze(process->place, true);
      // A service holds its endpoint: no other process can take its place while it lives.
      if (fault.kind == Fault::kReplace && process->role.role != Role::kReplay &&
          process->role.role != Role::kParamServer) {
        process->replaced = true;
        for (Slot& slot : slots_) {
          if (slot.role == process->role) slot.start_at = now_ + Seconds(1);
        }
      }
      active_.push_back({fault, now_ + fault.lasts});
      active_.back().fault.role = process->place;
      break;
    case Fault::kBlock:
    case Fault::kIsolate:
      pairs([&](const std::string& a, const std::string& b) {
        Active active{fault, now_ + fault.lasts};
        active.fault.role = a;
        active.fault.other = b;
        hub_->Block(a, b, true);
        if (fault.kind == Fault::kIsolate) hub_->Block(b, a, true);
        active_.push_back(std::move(active));
      });
      break;
    case Fault::kBreak:
      pairs([&](const std::string& a, const std::string& b) { hub_->Break(a, b); });
      break;
    case Fault::kSlow:
      if (process == nullptr) return;
      weather_.slow = process->place;
      active_.push_back({fault, now_ + fault.lasts});
      break;
    case Fault::kDisk:
      disk_->FailFrom(disk_->changes(), ResourceExhausted("no space is left on the device"));
      active_.push_back({fault, now_ + fault.lasts});
      break;
    case Fault::kPower:
      PowerLoss();
      break;
    case Fault::kScale:
      return coordinator_->Handle(
          {.type = MessageType::kScale, .body = EncodeBody(ScaleRequest{fault.role, fault.count})},
          Reply(std::make_unique<MoveCounter>(&outcome_.moves)));
  }
  ++outcome_.faults;
}

void Fleet::StrikeArmed() {
  for (std::size_t i = 0; i < armed_.size(); ++i) {
    Armed& armed = armed_[i];
    Process* const process = Playing(armed.fault.role);
    const Time ends = process == nullptr ? kForever : process->executor->next();
    if (!armed.at && ends != kForever && ends > now_) {
      armed.at = now_ + Duration(std::int64_t(rng_.Uniform() * double((ends - now_).count())));
    }
    if (now_ < armed.at.value_or(armed.at_last)) continue;
    const bool tear = armed.fault.kind == Fault::kTear;
    armed_.erase(armed_.begin() + std::ptrdiff_t(i--));
    if (process != nullptr) Kill(process, tear);
  }
}

void Fleet::EndFault(const Active& active) {
  const Fault& fault = active.fault;
  switch (fault.kind) {
    case Fault::kFreeze:
    case Fault::kReplace:
      for (const auto& process : processes_) {
        if (process->place != fault.role) continue;
        process->frozen = false;
        process->wakes_at = now_;
        process->Changed();
      }
      hub_->Freeze(fault.role, false);
      break;
    case Fault::kBlock:
    case Fault::kIsolate:
      hub_->Block(fault.role, fault.other, false);
      hub_->Block(fault.other, fault.role, false);
      break;
    case Fault::kSlow:
      weather_.slow.clear();
      break;
    case Fault::kDisk:
      disk_->Repair();
      break;
    default:
      break;
  }
}

void Fleet::EndFaults(bool all) {
  for (std::size_t i = 0; i < active_.size();) {
    if (!all && now_ < active_[i].until) {
      ++i;
      continue;
    }
    const Active ended = std::move(active_[i]);
    active_.erase(active_.begin() + std::ptrdiff_t(i));
    EndFault(ended);
    progress_at_ = now_;
  }
}

// Only synced data is sure to survive.
void Fleet::PowerLoss() {
  EndFaults(true);
  for (const auto& process : processes_) hub_->Kill(process->place);
  EndRun();
  checker_.PowerLost();
  disk_ = disk_->AfterPowerLoss(&rng_);
  ++outcome_.resumes;
  const Status begun = BeginRun();
  if (!begun.ok()) {
    checker_.Breach(
        fmt::format("after a power loss the run cannot be resumed: {}", begun.ToString()));
  }
}

// ---- Time ---------------------------------------------------------------------------------------

Time Fleet::NextTime() const {
  Time next = hub_->next_event();
  const auto at = [&next](Time t) { next = std::min(next, t); };
  if (next_fault_ < plan_.faults.size()) at(plan_.faults[next_fault_].at);
  for (const Active& active : active_) at(active.until);
  for (const Armed& armed : armed_) at(armed.at.value_or(armed.at_last));
  for (const Slot& slot : slots_) {
    if (slot.start_at) at(*slot.start_at);
  }
  at(next_watch_);
  at(std::min(coordinator_wakes_, network_->next_pump()));
  for (const auto& process : processes_) {
    if (!process->frozen) at(process->wants());
  }
  return next;
}

// Steps and updates must grow in the absence of faults. A resumed run counts from its checkpoint.
void Fleet::NoteProgress() {
  const RunView view = coordinator_->View();
  if (view.steps < steps_) {
    checker_.Breach(fmt::format("agent steps fell from {} to {}", steps_, view.steps));
  }
  if (view.steps > view.steps_total) {
    checker_.Breach(
        fmt::format("{} agent steps, more than the total of {}", view.steps, view.steps_total));
  }
  const auto found = view.metrics.find("learner/version");
  const auto updates = found == view.metrics.end() ? 0 : std::uint64_t(found->second.value);
  if (view.steps > steps_ || updates > updates_ || view.phase >= Phase::kEvaluating) {
    progress_at_ = now_;
  }
  steps_ = view.steps;
  updates_ = std::max(updates_, updates);
  if (!active_.empty()) progress_at_ = now_;
  if (now_ - progress_at_ > kPatience) {
    std::string members;
    for (const MemberView& m : view.members) {
      members += fmt::format(" {}@{}({:.1f} s)", PeerName(m.role, m.index), m.incarnation,
                             m.heartbeat_age_s);
    }
    checker_.Breach(fmt::format("no progress for {:.0f} s: {} steps, {} updates, phase {};{}",
                                ToSeconds(kPatience), steps_, updates_, PhaseName(view.phase),
                                members));
  }
  outcome_.waiting_max = std::max(outcome_.waiting_max, hub_->waiting());
  if (hub_->waiting() > plan_.waiting_max) {
    checker_.Breach(fmt::format("{} messages are queued", hub_->waiting()));
  }
}

bool Fleet::Over() const {
  return coordinator_done_ && coordinator_->phase() == Phase::kDone && processes_.empty();
}

void Fleet::Turn() {
  now_ = std::max(now_ + kTick, NextTime());
  hub_->Advance(now_);
  EndFaults(false);
  while (next_fault_ < plan_.faults.size() && plan_.faults[next_fault_].at <= now_) {
    Apply(plan_.faults[next_fault_++]);
  }
  StrikeArmed();
  SeatWanted();
  StartDue();
  if (std::min(coordinator_wakes_, network_->next_pump()) <= now_) StepCoordinator();
  std::vector<Process*> due;
  for (const auto& process : processes_) {
    if (!process->frozen && process->wants() <= now_) due.push_back(process.get());
  }
  for (Process* process : due) StepProcess(process);
  if (now_ < next_watch_) return;
  Watch();
  if (++looks_ % 4 == 0) NoteProgress();
}

Outcome Fleet::Live() {
  const Status begun = BeginRun();
  TROOP_CHECK(begun.ok(), "{}", begun.ToString());
  const Time end = Time{} + plan_.length + kGrace;
  while (checker_.breach().empty() && !Over()) {
    Turn();
    if (now_ > end) {
      std::string there;
      for (const auto& process : processes_) there += " " + process->place;
      checker_.Breach(
          fmt::format("the run has not ended {:.0f} s after the last fault: {} steps;{}",
                      ToSeconds(kGrace), steps_, there));
    }
  }
  outcome_.breach = checker_.breach();
  if (!outcome_.breach.empty()) {
    outcome_.breach = fmt::format("at {:.3f} s: {}", ToSeconds(now_ - Time{}), outcome_.breach);
  }
  const RunView view = coordinator_->View();
  outcome_.ended = now_;
  outcome_.messages = delivered_before_ + hub_->delivered();
  outcome_.items = checker_.sent();
  outcome_.acknowledged = checker_.acknowledged();
  outcome_.restored = checker_.restored();
  outcome_.gradients = checker_.applied();
  outcome_.items_of_shard = checker_.ItemsOfShards();
  outcome_.items_of_actor = checker_.ItemsOfActors(std::uint64_t(plan_.config.actor.envs));
  outcome_.steps = view.steps;
  outcome_.updates = updates_;
  Mix(std::uint64_t(outcome_.items));
  Mix(outcome_.updates);
  outcome_.hash = hash_;
  if (outcome_.breach.empty() && view.steps != view.steps_total) {
    outcome_.breach =
        fmt::format("the run ended after {} of {} steps", view.steps, view.steps_total);
  }
  const auto finals = std::ranges::count_if(view.evaluations, &EvaluationReport::final);
  if (outcome_.breach.empty() && finals != 1) {
    outcome_.breach = fmt::format("{} final evaluations, expected 1", finals);
  }
  EndRun();
  return outcome_;
}

}  // namespace

Outcome Live(const Plan& plan) { return Fleet(plan).Live(); }

}  // namespace troop::simulation
