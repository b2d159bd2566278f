#include "apps/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "apps/endpoints.h"
#include "apps/serial_fleet.h"
#include "apps/service_node.h"
#include "envs/environment.h"
#include "nn/model.h"

namespace troop {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Of the machine, or of the container this runs in (cgroup version 2).
double MachineMemoryBytes() {
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  double limit = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  return file >> limit && limit > 0 ? std::min(machine, limit) : machine;  // "max": no limit
}

}  // namespace

Result<RunNeeds> PredictNeeds(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const auto env, MakeEnvironment(config.env.id, EnvOptionsFor(config)));
  TROOP_ASSIGN_OR_RETURN(const auto module, MakeNetwork(config, env->spec()));
  RunNeeds needs;
  needs.env = env->spec();
  needs.parameters = ParameterCount(*module);
  needs.replay_bytes = double(PredictReplayBytes(ReplayOptionsFor(config, env->spec())));
  needs.replay_bytes_max = config.replay.memory_bytes_max > 0 ? config.replay.memory_bytes_max
                                                              : 0.75 * MachineMemoryBytes();
  return needs;
}

Status CheckMachine(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const RunNeeds needs, PredictNeeds(config));
  if (!needs.env.action.discrete() && config.learner.algorithm == "dqn") {
    return InvalidArgument(
        "env.id: {} has continuous actions, learner.algorithm \"dqn\" needs "
        "discrete ones",
        config.env.id);
  }
  if (needs.replay_bytes <= needs.replay_bytes_max) return Status::Ok();
  return InvalidArgument(
      "replay.capacity_items = {}: the full replay takes {:.2f} GiB, the limit is {:.2f} GiB ({}); "
      "hold fewer items, or use a machine with more memory",
      config.replay.capacity_items, needs.replay_bytes / kGiB, needs.replay_bytes_max / kGiB,
      config.replay.memory_bytes_max > 0 ? "replay.memory_bytes_max"
                                         : "three quarters of this machine's memory");
}

Result<std::string> DescribeRun(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const RunNeeds needs, PredictNeeds(config));
  TROOP_ASSIGN_OR_RETURN(const auto endpoints, Endpoints::Make(config));
  std::string out = fmt::format(
      "run          {} ({})\nenvironment  {}: observation {}, {} actions\nnetwork      {} "
      "parameters, "
      "{}\nsteps        {:.0f} agent steps, {} environments\n",
      config.name, config.fleet.mode, config.env.id, needs.env.observation.ToString(),
      needs.env.action.count, needs.parameters, config.network.precision,
      config.learner.total_steps, config.fleet.actors * config.actor.envs);
  out += fmt::format("replay       {} items, {:.3f} GiB when full (limit {:.3f} GiB)\n",
                     config.replay.capacity_items, needs.replay_bytes / kGiB,
                     needs.replay_bytes_max / kGiB);
  if (config.fleet.mode == "serial") return out + "roles        all in one thread\n";
  out += fmt::format("roles\n  {:<14} {}\n", "coordinator", endpoints->For(Role::kCoordinator, 0));
  for (const FleetRole& role : RolesOf(config)) {
    const bool serves = role.role == Role::kReplay || role.role == Role::kParamServer;
    out += fmt::format("  {:<14} {}\n", PeerName(role.role, role.index),
                       serves ? endpoints->For(role.role, role.index) : "-");
  }
  return out;
}

}  // namespace troop
