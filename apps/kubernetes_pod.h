#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/yaml.h"
#include "core/config.h"
#include "net/message.h"

namespace troop {

// One Job of a run: pods that are all alike and play the same roles.
struct PodGroup {
  std::string run;         // the run's name as the cluster has it
  std::string name;        // "coordinator", "actor"
  std::vector<Role> keys;  // those whose keys the pods have; empty: the run has none
  std::int64_t pods = 1;
  double cores = 0;  // of a pod
  std::int64_t memory_mib = 0;
  std::int64_t gpus = 0;
  bool serves = false;               // others connect to it: it has to know who is allowed
  bool writes = false;               // into the run's folder
  std::vector<std::string> command;  // of `troop`
  std::vector<std::string> started, ready, alive;  // commands that end with 0 when it is so
  std::int64_t start_patience_s = 60;              // until `started` has to hold
};

std::string ObjectName(const PodGroup& group);  // "<run>-<group>", a DNS label
std::string KeySecretName(const PodGroup& group);
std::string RunClaimName(const Config& config, const std::string& run);
std::string ConfigMapName(const std::string& run);
// Where the coordinator's pod is found, whatever its address.
std::string CoordinatorHost(const Config& config, const std::string& run);

// Labels of all objects of a run; those of `group` also have its name.
Yaml RunLabels(const std::string& run);
Yaml GroupLabels(const PodGroup& group);

// What a Job has in `spec`: as few rights as `troop` needs, and no more than its share of a node.
Yaml JobSpec(const Config& config, const PodGroup& group);

inline constexpr char kKeysAt[] = "/keys", kRunsAt[] = "/runs",
                      kHealthAt[] = "/dev/shm/troop-health";

}  // namespace troop
