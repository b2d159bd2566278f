#pragma once

#include <vector>

#include "fleet/launcher/role_launcher.h"

namespace troop {

// Runs the roles of a config as processes of this machine, except those that are started elsewhere:
// external roles (fleet.external_roles), and under mpirun the learners of the other ranks.
class LocalLauncher final : public RoleLauncher {
 public:
  // external_learners: true if mpirun starts all learners but learner 0.
  LocalLauncher(const Config& config, bool external_learners);

  std::vector<FleetRole> Slots(std::int32_t parameter_servers) override;
  void Configure(Supervisor::Options*) override {}  // a slot is a plain child process
  // Errors: those of CheckMachine and RaiseOpenFiles; kInvalidArgument: too many actors.
  Status CheckRoom(const Config& config) const override;
  bool StartsExternalRoles() const override { return false; }
  bool HasRoleIndex(FleetRole) const override { return true; }
  bool Needs(FleetRole slot, const Coordinator& coordinator, Time now) override;
  void NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now) override;
  Status Watch(Time now, Coordinator* coordinator, Supervisor* supervisor, Time* next) override;

 private:
  const Config config_;
  const bool external_learners_;
};

}  // namespace troop
