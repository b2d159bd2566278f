// Declares the config keys of Slurm jobs.
#include "fleet/config/sections/slurm_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

// Placement of roles on the nodes of a job.
void VisitSlurmPlaces(SlurmConfig& c, ConfigVisitor& v) {
  v.Visit(
      {"slurm.learner_cpus", "CPUs of a node that are reserved for a learner.", Between(1, 4096)},
      c.learner_cpus);
  v.Visit({"slurm.replay_cpus", "CPUs of a node that are reserved for a replay shard.",
           Between(1, 4096)},
          c.replay_cpus);
  v.Visit({"slurm.learner_node",
           "Index of the node of learner 0; further learners use the following nodes, and node 0 "
           "runs the coordinator. -1 selects the node with the most free CPUs, and node 0 only if "
           "no other one has a free CPU.",
           Between(-1, 9999)},
          c.learner_node);
  v.Visit({"slurm.replay_node",
           "Index of the node of replay shard 0; further shards use the following nodes, and node "
           "0 runs the coordinator. -1 selects the node with the most free CPUs, and node 0 only "
           "if no other one has a free CPU.",
           Between(-1, 9999)},
          c.replay_node);
}

}  // namespace

void VisitKeys(SlurmConfig& c, ConfigVisitor& v) {
  v.Visit({"slurm.nodes", "Number of nodes of the job, with fleet.engine = \"slurm\".",
           Between(1, 10000)},
          c.nodes);
  v.Visit({"slurm.partition", "Partition of the job; empty means the cluster's default."},
          c.partition);
  v.Visit({"slurm.account", "Account of the job; empty means the user's default."}, c.account);
  v.Visit({"slurm.time_limit",
           "Time limit in the format of sbatch: minutes, HH:MM:SS or D-HH:MM:SS; empty means the "
           "partition's limit."},
          c.time_limit);
  v.Visit({"slurm.cpus", "CPUs per node; 0 allocates whole nodes.", Between(0, 4096)}, c.cpus);
  v.Visit({"slurm.memory", "Memory per node, such as \"16G\"; empty means the cluster's default."},
          c.memory);
  v.Visit({"slurm.gpus", "GPUs per node.", Between(0, 64)}, c.gpus);
  VisitSlurmPlaces(c, v);
  // Preemption and time limits.
  v.Visit({"slurm.signal_s",
           "Seconds before the time limit at which the run writes a checkpoint and requeues its "
           "job; 0 disables this.",
           Between(0, 65535)},
          c.signal_s);
  v.Visit({"slurm.requeue",
           "Requeue the job after its time limit, a preemption, or the loss of its first node; the "
           "run resumes from its latest checkpoint."},
          c.requeue);
  v.Visit({"slurm.options", "Additional sbatch options, such as \"--qos=high\"."}, c.options);
  v.Visit({"slurm.setup",
           "Shell commands to run before Troop starts, such as \"module load openblas\"."},
          c.setup);
}

}  // namespace troop
