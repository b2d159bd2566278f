// Declares the config keys of Kubernetes manifests.
#include "fleet/config/sections/kubernetes_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

// Resources of pods, per role.
void VisitPods(KubernetesConfig& c, ConfigVisitor& v) {
  const ConfigRange cores = LeftOpen(0, 1024);
  v.Visit({"kubernetes.coordinator_cpu",
           "CPU cores of the coordinator (request and limit). A pod with several roles gets the "
           "sum of their resources.",
           cores},
          c.coordinator_cpu);
  v.Visit({"kubernetes.coordinator_memory",
           "Memory of the coordinator (request and limit): a whole number with the suffix Ki, Mi, "
           "Gi or Ti."},
          c.coordinator_memory);
  v.Visit({"kubernetes.replay_cpu", "CPU cores of a replay shard (request and limit).", cores},
          c.replay_cpu);
  v.Visit({"kubernetes.replay_memory", "Memory of a replay shard (request and limit)."},
          c.replay_memory);
  v.Visit(
      {"kubernetes.paramserver_cpu", "CPU cores of a parameter server (request and limit).", cores},
      c.paramserver_cpu);
  v.Visit({"kubernetes.paramserver_memory", "Memory of a parameter server (request and limit)."},
          c.paramserver_memory);
  v.Visit({"kubernetes.learner_cpu", "CPU cores of a learner (request and limit).", cores},
          c.learner_cpu);
  v.Visit({"kubernetes.learner_memory", "Memory of a learner (request and limit)."},
          c.learner_memory);
  v.Visit({"kubernetes.learner_gpus", "GPUs (nvidia.com/gpu) of the learner pod; 0 requests none.",
           Between(0, 64)},
          c.learner_gpus);
  v.Visit({"kubernetes.actor_cpu", "CPU cores of an actor (request and limit).", cores},
          c.actor_cpu);
  v.Visit({"kubernetes.actor_memory", "Memory of an actor (request and limit)."}, c.actor_memory);
  v.Visit({"kubernetes.actors_per_pod", "Actor processes per pod; must divide fleet.actors.",
           Between(1, 1024)},
          c.actors_per_pod);
  v.Visit({"kubernetes.evaluator_cpu", "CPU cores of the evaluator (request and limit).", cores},
          c.evaluator_cpu);
  v.Visit({"kubernetes.evaluator_memory", "Memory of the evaluator (request and limit)."},
          c.evaluator_memory);
  v.Visit(
      {"kubernetes.inference_cpu", "CPU cores of an inference server (request and limit).", cores},
      c.inference_cpu);
  v.Visit({"kubernetes.inference_memory", "Memory of an inference server (request and limit)."},
          c.inference_memory);
  v.Visit({"kubernetes.shared_memory",
           "Size of /dev/shm in each pod; counts toward the memory limit of the pod."},
          c.shared_memory);
}

}  // namespace

void VisitKeys(KubernetesConfig& c, ConfigVisitor& v) {
  v.Visit({"kubernetes.image",
           "Container image with `troop`, for fleet.engine = \"kubernetes\" "
           "(docs/guide/kubernetes.md)."},
          c.image);
  v.Visit({"kubernetes.namespace", "Namespace of all objects; must exist."}, c.name_space);
  v.Visit(
      {"kubernetes.claim",
       "Existing PersistentVolumeClaim for the run folder; empty creates one named after the run."},
      c.claim);
  v.Visit({"kubernetes.storage", "Size of the created claim."}, c.storage);
  v.Visit({"kubernetes.storage_class",
           "Storage class of the created claim; empty means the cluster's default. Must support "
           "writes from several nodes if roles that write to the run folder have separate pods "
           "(fleet.external_roles)."},
          c.storage_class);
  v.Visit({"kubernetes.data_claim",
           "PersistentVolumeClaim with data, mounted read-only at /data in every pod; empty mounts "
           "none."},
          c.data_claim);
  v.Visit({"kubernetes.port", "Port of the coordinator in its pod.", Between(1024, 65535)}, c.port);
  VisitPods(c, v);
  // Termination, and the kind of workload.
  v.Visit({"kubernetes.termination_grace_s",
           "Seconds between SIGTERM and SIGKILL of a pod; must suffice for a checkpoint. "
           "fleet.shutdown_grace_s is derived from it, so that the drain ends before SIGKILL.",
           Between(1, 86400)},
          c.termination_grace_s);
  v.Visit({"kubernetes.jobset",
           "Write one JobSet instead of Jobs; requires JobSet (jobset.x-k8s.io) in the cluster."},
          c.jobset);
}

}  // namespace troop
