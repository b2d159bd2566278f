#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

class ConfigVisitor;

// The job of fleet.engine = "slurm" ([slurm]).
struct SlurmConfig {
  std::int64_t nodes = 1;
  std::string partition;           // empty: the cluster's own
  std::string account;             // the same
  std::string time_limit;          // format of sbatch --time; empty: limit of the partition
  std::int64_t cpus = 0;           // per node; 0: whole nodes
  std::string memory;              // per node, as in sbatch --mem; empty: default of the cluster
  std::int64_t gpus = 0;           // of each node
  std::int64_t learner_cpus = 1;   // CPUs reserved for a learner
  std::int64_t replay_cpus = 1;    // CPUs reserved for a replay
  std::int64_t learner_node = -1;  // node of learner 0; -1: automatic
  std::int64_t replay_node = -1;   // node of replay 0; -1: automatic
  std::int64_t signal_s = 60;      // seconds before the time limit; 0: no signal
  bool requeue = true;
  std::vector<std::string> options;  // more options of sbatch, "--qos=high"
  std::vector<std::string> setup;    // shell commands before the run, "module load ..."
  bool operator==(const SlurmConfig&) const = default;
};
// Declares the keys.
void VisitKeys(SlurmConfig& config, ConfigVisitor& visitor);

}  // namespace troop
