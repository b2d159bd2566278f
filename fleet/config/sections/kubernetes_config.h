#pragma once

#include <cstdint>
#include <string>

namespace troop {

class ConfigVisitor;

// The manifests of fleet.engine = "kubernetes" ([kubernetes]).
struct KubernetesConfig {
  std::string image = "troop:latest";
  std::string name_space = "default";
  std::string claim;             // existing volume claim; empty: one is created
  std::string storage = "10Gi";  // size of a created claim
  std::string storage_class;     // the same; empty: the cluster's default
  std::string data_claim;        // existing volume claim with data; empty: none
  std::int64_t port = 7701;      // port of the coordinator
  std::int64_t actors_per_pod = 1;
  double coordinator_cpu = 1, replay_cpu = 1, paramserver_cpu = 1;  // cores
  double learner_cpu = 2, actor_cpu = 1, evaluator_cpu = 1, inference_cpu = 2;
  std::string coordinator_memory = "2Gi", replay_memory = "4Gi", paramserver_memory = "2Gi";
  std::string learner_memory = "4Gi", actor_memory = "1Gi", evaluator_memory = "1Gi";
  std::string inference_memory = "2Gi";
  std::int64_t learner_gpus = 0;
  std::string shared_memory = "256Mi";  // size of /dev/shm per pod
  double termination_grace_s = 120;     // from SIGTERM to SIGKILL; must suffice for a checkpoint
  bool jobset = false;                  // a JobSet instead of Jobs and a Service
  bool operator==(const KubernetesConfig&) const = default;
};
// Declares the keys.
void VisitKeys(KubernetesConfig& config, ConfigVisitor& visitor);

}  // namespace troop
