#pragma once

#include <string>
#include <vector>

#include "apps/plan_link.h"
#include "core/config.h"
#include "core/status.h"

namespace troop {

// What a few updates and the links between learners were measured to take.
struct MeshProfile {
  double compute_s = 0;      // forward and backward of an update's batch on one thread, or on a GPU
  double step_s = 0;         // clip and optimizer
  double tokens = 0;         // of an update
  double labels = 0;         // of an update that are asked for
  std::string gpu;           // on which updates were made; empty: on the CPU
  double element_bytes = 4;  // of what parts of a model exchange
  LinkSpeed link;            // between learners of one machine
  LinkSpeed far;             // between machines
  int machines = 1;          // alike
  int cores = 1;             // that learners of a machine share; GPUs, where they compute there
};
// What an update at a mesh is expected to take.
struct MeshPlan {
  std::int64_t dp = 1, tp = 1;
  double compute_s = 0, tensor_s = 0, gradient_s = 0, step_s = 0;  // gradient: behind the backward
  double bytes = 0;                                                // that a learner sends
  double memory_bytes = 0;                                         // of a learner
  double seconds() const { return compute_s + tensor_s + gradient_s + step_s; }
};

// How many outputs of the last layer the head reads of so many sequences and tokens.
double LabelsOf(const Config& config, double tokens, double sequences);

// From the profile alone: products are shared evenly, learners are dealt evenly to as many machines
// as their cores ask for, and take turns beyond those, an all-reduce of n bytes over N ranks sends
// 2 (N - 1) / N n from each, over the links between machines where its ranks are on several, and
// gradients of all but the embeddings travel while backward goes on. With learner.sync =
// "paramserver": a worker's gradient goes to the shards and their weights come back, behind the
// backward pass; gradient_s has the shards' steps. Errors: as TextModelOptions: the mesh does not
// fit.
Result<MeshPlan> PlanMesh(const Config& config, const MeshProfile& profile, std::int64_t dp,
                          std::int64_t tp);
// Every mesh of up to `learners` learners that the config's model allows, the fastest first.
Result<std::vector<MeshPlan>> PlanMeshes(const Config& config, const MeshProfile& profile,
                                         std::int64_t learners);

// Makes a few updates of the config's data and model, on the GPU where the config's learners would
// compute on one, and all-reduces between two threads, or between two GPUs by NCCL. Takes some
// seconds. Errors: as MakeAlgorithm.
Result<MeshProfile> ProfileMesh(const Config& config, int updates);

// What an update of this run should take at the mesh that it has, profiled here and now on this
// machine. Errors: as the two above.
Result<MeshPlan> PlanRun(const Config& config);

// `troop plan`. Returns the exit code.
struct PlanOptions {
  std::int64_t learners = 0;  // at most; 0: as many as there are cores
  std::string machine;        // "host:port" of another one, where --serve waits; empty: none
  std::int64_t machines = 2;  // with that one, all alike
};
int PlanCommand(const Config& config, const PlanOptions& options);
// `troop plan --serve`: the other side of --machine, until nobody has come for ten minutes.
int ServePlanLink(const std::string& address);

}  // namespace troop
