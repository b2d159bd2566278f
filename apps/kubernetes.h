#pragma once

#include <string>
#include <vector>

#include "apps/train.h"
#include "core/config.h"
#include "core/status.h"

namespace troop {

// What a cluster with Kubernetes 1.29 or newer is given to run a config (docs/guide/kubernetes.md).
struct Manifest {
  std::string name;  // of the file: "coordinator.yaml"
  std::string text;
};

// A Job for the coordinator, which plays all roles that fleet.elsewhere does not name (that is
// empty: all but actors); an Indexed Job for each role that it names, whose pods join as `troop
// join` does; a headless Service, so that the coordinator has a name; a NetworkPolicy, a ConfigMap
// with the config, a claim for the run's folder, and keys.sh, which hands the keys to the cluster:
// one Secret for each Job, with the keys of its roles alone. No text holds a secret. With
// kubernetes.jobset the Jobs and the Service are one JobSet.
// REQUIRES: config.fleet.engine == "kubernetes". Errors: kInvalidArgument: what can't be asked of
// a cluster, with what to do.
Result<std::vector<Manifest>> KubernetesManifests(const Config& config);

// `troop train --engine kubernetes`: writes them to kubernetes/ in the run's folder, or with
// options.dry_run prints them as one stream that kubectl takes. Starts nothing, and asks no
// cluster. Returns the exit code.
int WriteForKubernetes(const Config& config, const TrainOptions& options);

}  // namespace troop
