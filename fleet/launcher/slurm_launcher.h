#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fleet/launcher/role_launcher.h"
#include "fleet/launcher/slurm_nodes.h"

namespace troop {

// Runs the roles of `troop train` on the nodes of a Slurm job. The launcher is on the first node
// and starts roles on the others as job steps (srun), each a child of its supervisor; actors are
// one `troop join` per node.
//
// Slurm needs half a minute to detect a dead node; lost connections show it in seconds, and the
// roles of that node are then restarted on another one. A guard process on up to two other nodes
// requeues the job when the first node is lost: Slurm would not, because the job runs with
// --no-kill to survive the loss of its other nodes. Owner: the launcher's thread.
class SlurmLauncher final : public RoleLauncher {
 public:
  struct Options {
    std::string job;  // SLURM_JOB_ID
    std::vector<SlurmNodes::Node> nodes;
    std::vector<std::string> addresses;  // of each node, numeric; [0]: as other nodes reach it
    std::string srun;                    // path
    std::string program;                 // path of troop, on every node
    std::string logs;                    // folder of the run's logs, on every node
  };
  // Reads the job from its environment. Errors: kFailedPrecondition: not in a job; kNotFound: no
  // srun; kUnavailable: a node's name has no address.
  static Result<Options> ReadJob(const Config& config);
  SlurmLauncher(const Config& config, Options options);
  ~SlurmLauncher() override;
  SlurmLauncher(const SlurmLauncher&) = delete;
  SlurmLauncher& operator=(const SlurmLauncher&) = delete;

  // The roles of RolesOf, but actors as one slot per node with actors, whose index is that of the
  // node.
  std::vector<FleetRole> Slots(std::int32_t parameter_servers) override;
  // Slots become job steps. Actor slots are optional: a run continues without some nodes.
  void Configure(Supervisor::Options* options) override;
  // Always succeeds: the room is that of the job's nodes, not of this machine.
  Status CheckRoom(const Config&) const override { return Status::Ok(); }
  bool StartsExternalRoles() const override { return true; }
  bool HasRoleIndex(FleetRole slot) const override { return slot.role != Role::kActor; }

  // False for an actor slot whose node is suspected.
  bool Needs(FleetRole slot, const Coordinator& coordinator, Time now) override;
  // Also suspects the node of the child.
  void NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now) override;
  // Moves roles whose node is lost, and kills their steps.
  Status Watch(Time now, Coordinator* coordinator, Supervisor* supervisor, Time* next) override;

 private:
  struct Start {
    std::uint64_t incarnation = 0;  // the newest one before this start
    bool heard = false;             // it has registered
  };
  // Turns the command line of a slot into a job step on its node.
  void Wrap(FleetRole slot, const std::string& coordinator, std::string* program,
            std::vector<std::string>* words);
  std::string LogName(FleetRole slot) const;
  void Lose(FleetRole role, const std::string& why, Time now);
  Status CheckActors(Time now, const std::vector<MemberView>& members, Coordinator* coordinator,
                     Supervisor* supervisor);
  void KeepGuards(Time now);
  std::vector<std::string> StepWords(int node, const std::string& name) const;
  int NodeOf(FleetRole slot) {
    return slot.role == Role::kActor ? slot.index : nodes_.NodeOf(slot);
  }

  const Config config_;
  const Options options_;
  SlurmNodes nodes_;
  std::map<std::pair<Role, std::int32_t>, std::uint64_t> newest_;  // newest known incarnations
  std::map<std::pair<Role, std::int32_t>, Start> starts_;
  std::map<int, std::pair<pid_t, Time>> guards_;  // by node: its process, or 0 and the next start
  std::optional<Time> actors_missed_;             // since then there has been no actor
};

}  // namespace troop
