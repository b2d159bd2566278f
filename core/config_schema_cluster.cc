#include "core/config_schema.h"

namespace troop {
namespace {

void VisitSlurmPlaces(Config::SlurmKeys& c, ConfigVisitor& v) {
  v.Visit(
      {"slurm.learner_cpus", "CPUs of a node that a learner keeps from actors.", Between(1, 4096)},
      c.learner_cpus);
  v.Visit({"slurm.replay_cpus", "CPUs of a node that a replay shard keeps from actors.",
           Between(1, 4096)},
          c.replay_cpus);
  v.Visit({"slurm.learner_node",
           "Node of learner 0 in the job, from 0, where the coordinator is; the others follow. -1: "
           "the node with the most CPUs left, another than the first where there is one.",
           Between(-1, 9999)},
          c.learner_node);
  v.Visit({"slurm.replay_node", "The same of replay shard 0.", Between(-1, 9999)}, c.replay_node);
}

void VisitSlurm(Config::SlurmKeys& c, ConfigVisitor& v) {
  v.Visit({"slurm.nodes", "Nodes of the job, for fleet.engine = \"slurm\".", Between(1, 10000)},
          c.nodes);
  v.Visit({"slurm.partition", "Partition of the job; empty: the cluster's default."}, c.partition);
  v.Visit({"slurm.account", "Account of the job; empty: the user's default."}, c.account);
  v.Visit({"slurm.time_limit",
           "Time limit as sbatch takes it: minutes, HH:MM:SS, D-HH:MM:SS; empty: the partition's."},
          c.time_limit);
  v.Visit({"slurm.cpus", "CPUs of each node; 0: whole nodes.", Between(0, 4096)}, c.cpus);
  v.Visit({"slurm.memory", "Memory of each node, such as \"16G\"; empty: the cluster's default."},
          c.memory);
  v.Visit({"slurm.gpus", "GPUs of each node.", Between(0, 64)}, c.gpus);
  VisitSlurmPlaces(c, v);
  v.Visit({"slurm.signal_s",
           "Seconds before the time limit at which the run writes a checkpoint and has its job "
           "queued again; 0: never.",
           Between(0, 65535)},
          c.signal_s);
  v.Visit({"slurm.requeue",
           "Queue the job again after its time limit, a preemption, or the loss of its first node: "
           "the run goes on from its newest checkpoint."},
          c.requeue);
  v.Visit({"slurm.options", "More options of sbatch, such as \"--qos=high\"."}, c.options);
  v.Visit({"slurm.setup", "Lines of shell before the run, such as \"module load openblas\"."},
          c.setup);
}

}  // namespace

void VisitCluster(Config& config, ConfigVisitor& visitor) {
  VisitSlurm(config.slurm, visitor);
  VisitKubernetes(config.kubernetes, visitor);
}

}  // namespace troop
