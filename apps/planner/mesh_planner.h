#pragma once

#include <string>
#include <vector>

#include "apps/planner/link_benchmark.h"
#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// Measured cost of a few updates, and of the links between learners.
struct MeshProfile {
  double compute_s = 0;      // forward and backward of one batch, on one thread or one GPU
  double step_s = 0;         // clip and optimizer
  double tokens = 0;         // of an update
  double labels = 0;         // of an update: outputs that the loss needs
  std::string gpu;           // that computed the updates; empty: the CPU
  double element_bytes = 4;  // bytes of an element in tensor-parallel exchanges
  LinkSpeed link;            // between learners of one machine
  LinkSpeed far;             // between machines
  int machines = 1;          // of equal speed
  int cores = 1;             // per machine, shared by its learners; GPUs if learners compute there
};
// Expected cost of an update on a mesh of dp x tp learners.
struct MeshPlan {
  std::int64_t dp = 1, tp = 1;
  double compute_s = 0, tensor_s = 0, gradient_s = 0, step_s = 0;  // gradient: not overlapped
  double bytes = 0;                                                // sent by a learner
  double memory_bytes = 0;                                         // of a learner
  double seconds() const { return compute_s + tensor_s + gradient_s + step_s; }
};

// Number of last-layer outputs that the head reads for this many tokens and sequences.
double LabelsOf(const Config& config, double tokens, double sequences);

// Predicts an update on a dp x tp mesh from the profile alone. Assumptions: matrix products are
// split evenly; learners are spread evenly over as few machines as their cores need, and share
// cores if there are too few; an all-reduce of n bytes over N ranks sends 2 (N - 1) / N n from
// each, over the links between machines if its ranks are on several; gradients except the
// embeddings' are reduced while backward runs. With learner.sync = "paramserver" the push and the
// pull follow the backward pass, and gradient_s includes the shards' steps. Errors: those of
// TextModelOptions: the mesh does not fit the model.
Result<MeshPlan> PlanMesh(const Config& config, const MeshProfile& profile, std::int64_t dp,
                          std::int64_t tp);
// Plans of all meshes of up to `learners` learners that the model allows, fastest first.
Result<std::vector<MeshPlan>> PlanMeshes(const Config& config, const MeshProfile& profile,
                                         std::int64_t learners);

// Measures `updates` updates of the config's model and data, on the GPU if its learners would use
// one, and all-reduces between two threads, or between two GPUs by NCCL. Blocks for some seconds.
// Errors: those of MakeAlgorithm.
Result<MeshProfile> ProfileMesh(const Config& config, int updates);

// Profiles on this machine and plans the config's own mesh. Errors: those of ProfileMesh and
// PlanMesh.
Result<MeshPlan> PlanRun(const Config& config);

// Options of `troop plan`.
struct PlanOptions {
  std::int64_t learners = 0;  // at most; 0: the number of cores or GPUs
  std::string machine;        // "host:port" of another machine that runs --serve; empty: none
  std::int64_t machines = 2;  // machines in total, of equal speed
};
// `troop plan`: prints a table of the plans. Returns the exit code.
int PlanCommand(const Config& config, const PlanOptions& options);
// `troop plan --serve`: serves link measurements for --machine. Returns after ten idle minutes.
int ServePlanLink(const std::string& address);

}  // namespace troop
