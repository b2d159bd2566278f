#include "apps/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "apps/endpoints.h"
#include "apps/serial_fleet.h"
#include "apps/service_node.h"
#include "envs/environment.h"
#include "learners/algorithm.h"
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

// How the parameters are laid out: layers of one size in another order are another network.
Status CheckLayout(const Config& config, const EnvSpec& env, const Config& saved) {
  TROOP_ASSIGN_OR_RETURN(const auto saved_env, MakeEnvironment(saved.env.id, EnvOptionsFor(saved)));
  TROOP_ASSIGN_OR_RETURN(const auto before, MakeNetwork(saved, saved_env->spec()));
  TROOP_ASSIGN_OR_RETURN(const auto now, MakeNetwork(config, env));
  const auto same = [](const ParamSpec& a, const ParamSpec& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (std::ranges::equal(before->params(), now->params(), same)) return Status::Ok();
  return InvalidArgument("it was saved with another network: other layers, or other sizes of them");
}

Status CheckFits(const Config& config, const CheckpointState& checkpoint) {
  TROOP_ASSIGN_OR_RETURN(const auto env, MakeEnvironment(config.env.id, EnvOptionsFor(config)));
  TROOP_ASSIGN_OR_RETURN(const auto algorithm, MakeAlgorithm(config, env->spec()));
  TROOP_RETURN_IF_ERROR(algorithm->SetState(checkpoint.state));
  // A config of another version may be unreadable by now; the sizes fit at least.
  const Result<Config> saved = ParseConfig(checkpoint.config_toml, "the checkpoint's config", {});
  return saved.ok() ? CheckLayout(config, env->spec(), *saved) : Status::Ok();
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

Status CheckResume(const Config& config, const CheckpointState& checkpoint,
                   const std::string& path) {
  const Status fits = CheckFits(config, checkpoint);
  if (fits.code() != Code::kInvalidArgument) return fits;
  return InvalidArgument(
      "{} does not fit this config: {}; resume with the run's own network.*, optimizer.type and "
      "env.id, or begin another run (name=…)",
      path, fits.message());
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
