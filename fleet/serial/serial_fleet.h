#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/base/executor.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/roles/role_node.h"
#include "net/transport/sim_network.h"

namespace troop {

// A role of a fleet by kind and index.
struct FleetRole {
  Role role = Role::kNone;
  std::int32_t index = 0;
  bool operator==(const FleetRole&) const = default;
};
// The roles that a launcher starts (all but fleet.external_roles), services first: replay,
// paramserver, learner, inference, actors, evaluator.
std::vector<FleetRole> RolesOf(const Config& config);
// Likewise with an explicit number of parameter servers, for a run that was resharded.
std::vector<FleetRole> RolesOf(const Config& config, std::int32_t parameter_servers);

// A fleet in one thread over the simulated network: nodes step in a fixed order, and virtual time
// advances by 1 ms per round. Equal config and seed give bit-equal files
// (docs/design/determinism.md).
class SerialFleet {
 public:
  // Makes all nodes; the resume arguments are those of Coordinator::Options. `run` outlives it.
  static Result<std::unique_ptr<SerialFleet>> Make(const Config& config, Storage* run,
                                                   const std::string& resume_checkpoint,
                                                   std::int64_t resume_steps,
                                                   std::uint64_t resume_updates);
  // Runs one round: each node pumps its network and steps once. False when the run is over and all
  // roles have left, or when one has failed.
  bool Round();
  void Drain() { coordinator_->Drain(); }
  Status result() const { return result_; }
  const Coordinator& coordinator() const { return *coordinator_; }
  Time now() const { return clock_.Now(); }

 private:
  struct Slot {
    FleetRole role;
    std::unique_ptr<Network> network;
    std::unique_ptr<InlineExecutor> executor;
    std::unique_ptr<Rendezvous> rendezvous;  // learners only
    std::unique_ptr<RoleNode> node;
    bool done = false;
  };
  SerialFleet() = default;

  ManualClock clock_;
  SimRendezvousFactory rendezvous_factory_;
  std::unique_ptr<SimHub> hub_;
  std::unique_ptr<Network> network_;  // the coordinator's
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::vector<Slot> slots_;
  Status result_;
};

}  // namespace troop
