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

void VisitOthers(Config::FleetKeys& c, ConfigVisitor& v) {
  v.Visit({"fleet.metrics",
           "HOST:PORT of the coordinator's metrics for Prometheus, such as 127.0.0.1:9464; beyond "
           "this machine with a token (docs/guide/watching.md). Empty: none."},
          c.metrics);
  v.Visit({"fleet.metrics_token", "File whose one line is the bearer token that they want."},
          c.metrics_token);
  v.Visit({"fleet.elsewhere",
           "Roles that this launcher does not start, such as [\"replay\", \"learner\"]: they join "
           "from other machines (`troop join --role`), in any order. Actors may join any run that "
           "listens."},
          c.elsewhere);
  v.Visit({"fleet.join_wait_s", "A seat of fleet.elsewhere that is empty for so long ends the run.",
           Between(0.1, 1e6)},
          c.join_wait_s);
  v.Visit({"fleet.actors_min",
           "Actors that must play, wherever they are: with fewer for fleet.join_wait_s the run "
           "ends.",
           Between(0, 100000)},
          c.actors_min);
  v.Visit(
      {"fleet.dashboard",
       "Where the coordinator shows the run in browsers (docs/guide/dashboard.md), as HOST:PORT, "
       "such as 127.0.0.1:8800. Beyond this machine it wants a token. Empty: nowhere."},
      c.dashboard);
  v.Visit({"fleet.dashboard_token",
           "File whose one line is the dashboard's token; nobody else may read it. Empty: none is "
           "asked for."},
          c.dashboard_token);
}

void VisitCluster(Config& config, ConfigVisitor& visitor) {
  VisitSlurm(config.slurm, visitor);
  VisitKubernetes(config.kubernetes, visitor);
}

}  // namespace troop
