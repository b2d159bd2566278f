#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/status.h"

namespace troop {

// What a few updates and a link between two processes of this machine were measured to take.
struct MeshProfile {
  double compute_s = 0;   // forward and backward of an update's batch on one thread
  double step_s = 0;      // clip and optimizer
  double tokens = 0;      // of an update
  double labels = 0;      // of an update that are asked for
  double latency_s = 0;   // of an all-reduce of few numbers
  double s_per_byte = 0;  // of a large one, for each byte that a rank sends
  int cores = 1;          // that learners share
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

// Of n bytes that N ranks reduce, each sends 2 (N - 1) / N n: the least that any all-reduce can do.
double SentShare(std::int64_t ranks);

// From the profile alone: products are shared evenly, learners beyond the cores take turns, an
// all-reduce of n bytes over N ranks sends 2 (N - 1) / N n from each, and gradients of all but the
// embeddings travel while backward goes on. Errors: as TextModelOptions: the mesh does not fit.
Result<MeshPlan> PlanMesh(const Config& config, const MeshProfile& profile, std::int64_t dp,
                          std::int64_t tp);
// Every mesh of up to `learners` learners that the config's model allows, the fastest first.
Result<std::vector<MeshPlan>> PlanMeshes(const Config& config, const MeshProfile& profile,
                                         std::int64_t learners);

// Makes a few updates of the config's data and model, and all-reduces between two threads over
// sockets. Takes some seconds. Errors: as MakeAlgorithm.
Result<MeshProfile> ProfileMesh(const Config& config, int updates);

// What an update of this run should take at the mesh that it has, profiled here and now on this
// machine. Errors: as the two above.
Result<MeshPlan> PlanRun(const Config& config);

// `troop plan`. learners: 0: as many as there are cores. Returns the exit code.
int PlanCommand(const Config& config, std::int64_t learners);

}  // namespace troop
