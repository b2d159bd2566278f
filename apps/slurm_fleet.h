#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/coordinator.h"
#include "apps/slurm_nodes.h"
#include "apps/supervisor.h"

namespace troop {

// The part of `troop train` that knows it is in a job of Slurm, on the job's first node: starts
// roles on the other nodes as steps (srun), each a child of the launcher's supervisor, and actors
// as one `troop join` a node. Slurm takes half a minute to see that a node is dead; the roles'
// connections tell it in seconds, and then what played there begins anew on another node. A guard
// on up to two other nodes has the job queued again when the first node is lost: with --no-kill,
// which lets the job outlive its other nodes, Slurm itself would not. Owner: the launcher's thread.
class SlurmFleet {
 public:
  struct Options {
    std::string job;  // SLURM_JOB_ID
    std::vector<SlurmNodes::Node> nodes;
    std::vector<std::string> addresses;  // of each node, numeric; [0]: that others reach us at
    std::string srun;                    // path
    std::string program;                 // path of troop, on every node
    std::string logs;                    // folder of the run's logs, on every node
  };
  // From the job's environment. Errors: kFailedPrecondition: not in a job; kNotFound: no srun;
  // kUnavailable: a node's name has no address.
  static Result<Options> ReadJob(const Config& config);
  SlurmFleet(const Config& config, Options options);
  ~SlurmFleet();
  SlurmFleet(const SlurmFleet&) = delete;
  SlurmFleet& operator=(const SlurmFleet&) = delete;

  // What the supervisor keeps alive: roles as RolesOf, but of actors a seat for each node that has
  // some, whose index is the node's.
  std::vector<FleetRole> Seats(std::int32_t parameter_servers);
  // The supervisor's parts of this.
  void Wrap(FleetRole seat, const std::string& coordinator, std::string* program,
            std::vector<std::string>* words);
  std::string LogName(FleetRole seat) const;
  // Not where its node is in doubt.
  bool MayStart(FleetRole seat, Time now) { return !nodes_.InDoubt(NodeOf(seat), now); }

  // A child ended: what the coordinator shall think of it.
  void NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now);
  // Looks for roles whose node is lost, and ends what waits for them. Not ok: the run has no hope.
  Status Watch(Time now, Coordinator* coordinator, Supervisor* supervisor);

 private:
  struct Start {
    std::uint64_t incarnation = 0;  // of the role's member when it was started: not this one
    bool heard = false;
  };
  void Lose(FleetRole role, const std::string& why, Time now);
  Status CheckActors(Time now, const std::vector<MemberView>& members, Coordinator* coordinator,
                     Supervisor* supervisor);
  void KeepGuards(Time now);
  std::vector<std::string> StepWords(int node, const std::string& name) const;
  int NodeOf(FleetRole seat) {
    return seat.role == Role::kActor ? seat.index : nodes_.NodeOf(seat);
  }

  const Config config_;
  const Options options_;
  SlurmNodes nodes_;
  std::map<std::pair<Role, std::int32_t>, std::uint64_t> newest_;  // incarnations by now
  std::map<std::pair<Role, std::int32_t>, Start> starts_;
  std::map<int, std::pair<pid_t, Time>> guards_;  // by node: its process, or 0 and when to start it
  std::optional<Time> actors_missed_;
};

}  // namespace troop
