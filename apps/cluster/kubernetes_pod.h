#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cluster/yaml_writer.h"
#include "fleet/config/config.h"
#include "net/message.h"

namespace troop {

// One Job of a run: identical pods that run the same roles.
struct PodGroup {
  std::string run;         // the run's name in the cluster
  std::string name;        // "coordinator", "actor"
  std::vector<Role> keys;  // roles whose keys the pods get; empty: a run without keys
  std::int64_t pods = 1;
  double cores = 0;  // of a pod
  std::int64_t memory_mib = 0;
  std::int64_t gpus = 0;
  bool serves = false;               // accepts connections, so it needs the allow list
  bool writes = false;               // mounts the run folder
  std::vector<std::string> command;  // arguments of `troop`
  std::vector<std::string> started, ready, alive;  // probe commands; exit code 0: true
  std::int64_t start_patience_s = 60;              // time limit for `started`
};

// Names of a run's objects. ObjectName is "<run>-<group>", a DNS label.
std::string ObjectName(const PodGroup& group);
std::string KeySecretName(const PodGroup& group);
std::string RunClaimName(const Config& config, const std::string& run);
std::string ConfigMapName(const std::string& run);
// The DNS name of the coordinator's pod.
std::string CoordinatorHost(const Config& config, const std::string& run);

// Labels of a run's objects; those of a group add its name.
Yaml RunLabels(const std::string& run);
Yaml GroupLabels(const PodGroup& group);

// The `spec` of a Job: least privileges, and resource limits.
Yaml JobSpec(const Config& config, const PodGroup& group);

// Mount points in the pods, and the health file (in memory).
inline constexpr char kKeysAt[] = "/keys", kRunsAt[] = "/runs",
                      kHealthAt[] = "/dev/shm/troop-health";

}  // namespace troop
