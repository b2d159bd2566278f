// Serial mode: the coordinator and all roles of a config, stepped in turn by one thread.
#include "fleet/serial/serial_fleet.h"

#include <algorithm>

#include "fleet/config/role_configs.h"
#include "fleet/roles/external_roles.h"

namespace troop {
namespace {

constexpr char kCoordinatorEndpoint[] = "inproc://coordinator";
// Virtual time that one round adds.
constexpr Duration kRound = Milliseconds(1);
// Virtual time. A round may take as long as 32 updates, so heartbeats are frequent enough that a
// stop request takes effect soon.
constexpr Duration kBeatEvery = Milliseconds(20);

}  // namespace

std::vector<FleetRole> RolesOf(const Config& config) {
  return RolesOf(config, ParameterServersOf(config));
}

std::vector<FleetRole> RolesOf(const Config& config, std::int32_t parameter_servers) {
  // Services first: others connect to them. The order is also that of the steps in serial mode.
  std::vector<FleetRole> roles;
  // Supervised and offline runs have neither replay nor actors.
  const bool plays = HasActors(config);
  for (std::int32_t k = 0; plays && k < std::int32_t(config.replay.shards); ++k) {
    roles.push_back({Role::kReplay, k});
  }
  for (std::int32_t k = 0; k < parameter_servers; ++k) {
    roles.push_back({Role::kParamServer, k});
  }
  for (std::int32_t i = 0; i < std::int32_t(config.fleet.learners); ++i) {
    roles.push_back({Role::kLearner, i});
  }
  for (std::int32_t i = 0; i < std::int32_t(InferenceServersOf(config)); ++i) {
    roles.push_back({Role::kInference, i});
  }
  for (std::int32_t i = 0; plays && i < std::int32_t(config.fleet.actors); ++i) {
    roles.push_back({Role::kActor, i});
  }
  if (config.evaluator.enabled) roles.push_back({Role::kEvaluator, 0});
  // External roles are started on other machines.
  std::erase_if(roles, [&config](const FleetRole& r) { return IsExternal(config, r.role); });
  return roles;
}

Result<std::unique_ptr<SerialFleet>> SerialFleet::Make(const Config& config, Storage* run,
                                                       const std::string& resume_checkpoint,
                                                       std::int64_t resume_steps,
                                                       std::uint64_t resume_updates) {
  std::unique_ptr<SerialFleet> fleet(new SerialFleet);
  // All nodes share one simulated network; endpoints are in-process names.
  fleet->hub_ = MakeSimHub();
  fleet->network_ = fleet->hub_->MakeNetwork();
  TROOP_ASSIGN_OR_RETURN(fleet->coordinator_,
                         Coordinator::Make({.config = config,
                                            .run = run,
                                            .listen =
                                                [](Role role, std::int32_t index) {
                                                  return "inproc://" + PeerName(role, index);
                                                },
                                            .resume_checkpoint = resume_checkpoint,
                                            .resume_steps = resume_steps,
                                            .resume_updates = resume_updates}));
  TROOP_ASSIGN_OR_RETURN(fleet->listener_,
                         fleet->network_->Listen(kCoordinatorEndpoint, fleet->coordinator_.get()));
  for (const FleetRole& role : RolesOf(config, fleet->coordinator_->parameter_servers())) {
    Slot slot{.role = role,
              .network = fleet->hub_->MakeNetwork(),
              .executor = std::make_unique<InlineExecutor>()};
    // Learners in one thread can't block in a rendezvous over sockets; this one never blocks.
    if (role.role == Role::kLearner) slot.rendezvous = fleet->rendezvous_factory_.Make();
    slot.node = std::make_unique<RoleNode>(
        RoleNode::Options{.role = role.role,
                          .index = role.index,
                          .coordinator = kCoordinatorEndpoint,
                          .host = "serial",
                          .heartbeat_every = kBeatEvery,
                          .network = slot.network.get(),
                          .executor = slot.executor.get(),
                          .rendezvous = slot.rendezvous.get(),
                          .storage = [run](const Config&) -> Result<Storage*> { return run; }});
    fleet->slots_.push_back(std::move(slot));
  }
  return fleet;
}

// The coordinator steps first, then the roles in the order of RolesOf. The first failure ends it.
bool SerialFleet::Round() {
  clock_.Advance(kRound);
  const Time now = clock_.Now();
  network_->Pump(now);
  const bool over = coordinator_->Step(now).what == StepStatus::kDone;
  bool failed = false;
  for (Slot& slot : slots_) {
    if (slot.done) continue;
    slot.network->Pump(now);
    if (slot.node->Step(now).what != StepStatus::kDone) continue;
    slot.done = true;
    // Exit code 0: the status below reports a failure.
    coordinator_->OnMemberExit(slot.role.role, slot.role.index, 0);
    const Status status = slot.node->result();
    if (!status.ok()) {
      result_ = status.WithContext(PeerName(slot.role.role, slot.role.index));
      failed = true;
    }
  }
  return !failed && !(over && std::ranges::all_of(slots_, &Slot::done));
}

}  // namespace troop
