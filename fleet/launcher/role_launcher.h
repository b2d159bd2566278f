#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/launcher/supervisor.h"

namespace troop {

// Decides which roles the process of `troop train` starts, where and with which command line, and
// when a started role counts as lost. The supervisor then starts and restarts the processes. The
// engines of a live run differ only here: LocalLauncher (local; mpi, where mpirun starts the other
// learners; kubernetes, where other pods run the external roles) and SlurmLauncher (slurm).
// Owner: the launcher's thread. No call but CheckRoom blocks.
class RoleLauncher {
 public:
  virtual ~RoleLauncher() = default;

  // Slots of the supervisor at the start. A slot is one role, or all actors of one machine.
  virtual std::vector<FleetRole> Slots(std::int32_t parameter_servers) = 0;
  // Sets the options that depend on where roles run: wrap, spare, log_name. REQUIRES: `options`
  // has the coordinator's endpoint, and this object outlives the supervisor.
  virtual void Configure(Supervisor::Options* options) = 0;
  // Checks that there is room for a scaled config (`troop scale`). Errors: kInvalidArgument.
  virtual Status CheckRoom(const Config& config) const = 0;
  // True if this launcher also starts the roles of fleet.external_roles.
  virtual bool StartsExternalRoles() const = 0;
  // True if the index of a slot is that of its role.
  virtual bool HasRoleIndex(FleetRole slot) const = 0;

  // True if the run needs a process in the slot, and one may start now.
  virtual bool Needs(FleetRole slot, const Coordinator& coordinator, Time now) = 0;
  // Handles the exit of a child: removes its member.
  virtual void NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now) = 0;
  // Kills roles that are lost or make no progress; the supervisor restarts them. Sets `next` to the
  // time of the next call. A failure ends the run.
  virtual Status Watch(Time now, Coordinator* coordinator, Supervisor* supervisor, Time* next) = 0;
};

}  // namespace troop
