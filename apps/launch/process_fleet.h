#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/launch/external_role_watch.h"
#include "apps/launch/run_session.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/role_launcher.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/roles/node_runner.h"
#include "net/network.h"

namespace troop {

// Runs the fleet of a run as processes: the coordinator in this one, the roles under a supervisor.
// A RoleLauncher decides where they run. Start, then Run. Owner: the thread of the run.
class ProcessFleet {
 public:
  struct Options {
    std::string launch;                 // TrainOptions::launch
    bool* requeue_requested = nullptr;  // TrainOptions::requeue_requested
  };
  // `session` is open, has not begun, and outlives the fleet.
  ProcessFleet(RunSession* session, std::unique_ptr<RoleLauncher> launcher, Options options);
  // Binds the coordinator and begins the session. Starts no role yet. Errors: keys, addresses or
  // ports that can't be used; those of Coordinator::Make and RunSession::Begin.
  Status Start();
  // Blocks until the run has ended; concludes the session. Returns the exit code. REQUIRES: Start
  // succeeded.
  int Run();

 private:
  Status MakeNetwork();
  Status MakeCoordinator();
  void WarnIfInsecure();
  Status WriteRunFile();
  void StartSupervisor();
  void Turn(Time now);
  void AddSlots();
  void AddSlot(FleetRole role);
  void NoteExit(const Supervisor::Exit& exit, bool needed);
  void WatchRoles(Time now);
  void HandleSignals(Time now);
  bool Needs(FleetRole role) const;
  void Fail(const Status& why, Time now);
  void AwaitExits();

  RunSession* const session_;
  const Options options_;
  const SystemClock clock_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<SignalWatch> signals_;
  const std::unique_ptr<RoleLauncher> launcher_;
  std::unique_ptr<Supervisor> supervisor_;          // uses launcher_
  std::optional<ExternalRoleWatch> missing_roles_;  // nullopt: launcher_ starts external roles too
  RunSource source_;                                // of the session's monitor
  bool authenticated_ = false;                      // true if members need keys
  std::optional<Time> kill_at_;                     // deadline of a drain; then roles are killed
  std::int32_t servers_ = 0;                        // parameter servers added to the supervisor
  std::uint64_t slots_ = 1;                         // RoleSlots::revision that the supervisor has
  Time next_watch_{};
  Status outcome_;
};

}  // namespace troop
