#include "core/config_schema.h"

namespace troop {
namespace {

void VisitPods(Config::KubernetesKeys& c, ConfigVisitor& v) {
  const ConfigRange cores = AboveUpTo(0, 1024);
  v.Visit({"kubernetes.coordinator_cpu",
           "Cores that the coordinator takes: requested, and the limit. A pod that plays several "
           "roles has what they all take together.",
           cores},
          c.coordinator_cpu);
  v.Visit({"kubernetes.coordinator_memory",
           "Memory that the coordinator takes, as a whole number with Ki, Mi, Gi or Ti; the same."},
          c.coordinator_memory);
  v.Visit({"kubernetes.replay_cpu", "The same of a replay shard.", cores}, c.replay_cpu);
  v.Visit({"kubernetes.replay_memory", "The same of a replay shard."}, c.replay_memory);
  v.Visit({"kubernetes.paramserver_cpu", "The same of a parameter server.", cores},
          c.paramserver_cpu);
  v.Visit({"kubernetes.paramserver_memory", "The same of a parameter server."},
          c.paramserver_memory);
  v.Visit({"kubernetes.learner_cpu", "The same of a learner.", cores}, c.learner_cpu);
  v.Visit({"kubernetes.learner_memory", "The same of a learner."}, c.learner_memory);
  v.Visit(
      {"kubernetes.learner_gpus",
       "GPUs (nvidia.com/gpu) of the pod with the learner; 0: none are asked for.", Between(0, 64)},
      c.learner_gpus);
  v.Visit({"kubernetes.actor_cpu", "The same of an actor.", cores}, c.actor_cpu);
  v.Visit({"kubernetes.actor_memory", "The same of an actor."}, c.actor_memory);
  v.Visit({"kubernetes.actors_per_pod", "Actor processes in a pod; divides fleet.actors.",
           Between(1, 1024)},
          c.actors_per_pod);
  v.Visit({"kubernetes.evaluator_cpu", "The same of the evaluator.", cores}, c.evaluator_cpu);
  v.Visit({"kubernetes.evaluator_memory", "The same of the evaluator."}, c.evaluator_memory);
  v.Visit({"kubernetes.inference_cpu", "The same of an inference server.", cores}, c.inference_cpu);
  v.Visit({"kubernetes.inference_memory", "The same of an inference server."}, c.inference_memory);
  v.Visit({"kubernetes.shared_memory",
           "Size of each pod's /dev/shm, which its memory's limit must have room for."},
          c.shared_memory);
}

}  // namespace

void VisitKubernetes(Config::KubernetesKeys& c, ConfigVisitor& v) {
  v.Visit({"kubernetes.image",
           "Image with `troop`, for fleet.engine = \"kubernetes\" (docs/guide/kubernetes.md)."},
          c.image);
  v.Visit({"kubernetes.namespace", "Namespace of all objects; it has to be there."}, c.name_space);
  v.Visit({"kubernetes.claim",
           "PersistentVolumeClaim for the run's folder that is there already; empty: the manifests "
           "ask for one, named after the run."},
          c.claim);
  v.Visit({"kubernetes.storage", "Size of that claim."}, c.storage);
  v.Visit({"kubernetes.storage_class",
           "Its storage class; empty: the cluster's default. One that several nodes can write to, "
           "where roles that write to the run's folder have pods of their own (fleet.elsewhere)."},
          c.storage_class);
  v.Visit({"kubernetes.data_claim",
           "PersistentVolumeClaim with data, which every pod sees at /data and none can change; "
           "empty: none."},
          c.data_claim);
  v.Visit({"kubernetes.port", "Port of the coordinator in its pod.", Between(1024, 65535)}, c.port);
  VisitPods(c, v);
  v.Visit({"kubernetes.grace_s",
           "Time that a pod has from SIGTERM until it is killed; a checkpoint has to fit in, and "
           "fleet.drain_s is taken from it.",
           Between(1, 86400)},
          c.grace_s);
  v.Visit({"kubernetes.jobset",
           "Writes one JobSet (jobset.x-k8s.io, which the cluster has to have) in place of Jobs."},
          c.jobset);
}

}  // namespace troop
