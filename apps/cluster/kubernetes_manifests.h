#pragma once

#include <string>
#include <vector>

#include "apps/launch/train.h"
#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// A file that runs a config on a cluster with Kubernetes 1.29 or newer (docs/guide/kubernetes.md).
struct Manifest {
  std::string name;  // file name: "coordinator.yaml"
  std::string text;
};

// The manifests of a run:
// - a Job for the coordinator, which also runs all roles that fleet.external_roles does not name
// (if it
//   is empty: all but actors);
// - an Indexed Job for each role that it names, whose pods join like `troop join`;
// - a headless Service, which gives the coordinator a DNS name;
// - a NetworkPolicy, a ConfigMap with the config, and a claim for the run folder;
// - keys.sh, which creates one Secret per Job with the keys of its roles only.
// No file contains a secret. With kubernetes.jobset the Jobs and the Service are one JobSet.
// REQUIRES: config.fleet.engine == "kubernetes". Errors: kInvalidArgument: the config can't run on
// a cluster, with the remedy.
Result<std::vector<Manifest>> KubernetesManifests(const Config& config);

// `troop train --engine kubernetes`: writes the manifests to kubernetes/ in the run folder, or with
// options.dry_run prints them as one stream for kubectl. Starts nothing and contacts no cluster.
// Returns the exit code.
int WriteForKubernetes(const Config& config, const TrainOptions& options);

}  // namespace troop
