#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apps/coordinator.h"
#include "apps/role_node.h"
#include "core/executor.h"
#include "net/sim_network.h"

namespace troop {

struct FleetRole {
  Role role = Role::kNone;
  std::int32_t index = 0;
  bool operator==(const FleetRole&) const = default;
};
// The roles that a launcher of this config starts (all but fleet.elsewhere), services first:
// replay, paramserver, learner, actors, evaluator.
std::vector<FleetRole> RolesOf(const Config& config);
// The same with so many parameter servers, where a run has others than its config says.
std::vector<FleetRole> RolesOf(const Config& config, std::int32_t parameter_servers);

// The whole fleet in one thread over the simulated network, in a fixed order, with virtual time
// that advances by one millisecond a round: same config and seed, same bytes
// (docs/design/determinism.md).
class SerialFleet {
 public:
  static Result<std::unique_ptr<SerialFleet>> Make(const Config& config, Storage* run,
                                                   const std::string& resume_checkpoint,
                                                   std::int64_t resume_steps,
                                                   std::uint64_t resume_updates);
  // One round: each node pumps and steps once. False when the run is over and all have left.
  bool Round();
  void Drain() { coordinator_->Drain(); }
  Status result() const { return result_; }
  const Coordinator& coordinator() const { return *coordinator_; }
  Time now() const { return clock_.Now(); }

 private:
  struct Seat {
    FleetRole role;
    std::unique_ptr<Network> network;
    std::unique_ptr<InlineExecutor> executor;
    std::unique_ptr<LearnerLobby> lobby;  // a learner's
    std::unique_ptr<RoleNode> node;
    bool done = false;
  };
  SerialFleet() = default;

  ManualClock clock_;
  SimLobbies lobbies_;
  std::unique_ptr<SimHub> hub_;
  std::unique_ptr<Network> network_;  // the coordinator's
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::vector<Seat> seats_;
  Status result_;
};

}  // namespace troop
